"use strict";
// A link into a folded part opens it; newer browsers do so by themselves.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let part = target; part; part = part.parentElement)
    if (part.tagName === "DETAILS") part.open = true;
  target.scrollIntoView();
}

// A click on a column's heading sorts the rows by it; another one reverses them.
function makeSortable(table) {
  const body = table.tBodies[0], headings = [...table.tHead.rows[0].cells];
  if (body.rows.length < 3) return;
  const key = (row, column) => row.cells[column].innerText.replace(/^[^\p{L}\p{N}−-]+/u, "").replace("−", "-");
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const direction = heading.ariaSort === "ascending" ? -1 : 1;
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      rows.sort(([a], [b]) => direction * (parseFloat(a) - parseFloat(b) || a.localeCompare(b)));
      body.append(...rows.map(([, row]) => row));
      for (const other of headings) other.ariaSort = null;
      heading.ariaSort = direction > 0 ? "ascending" : "descending";
    });
  });
}

// A field that hides the runs whose heading lacks a text.
function addFilter(place) {
  const label = document.createElement("label"), field = document.createElement("input");
  field.type = "search";
  label.append("Show runs with ", field);
  place.append(label);
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const run of document.querySelectorAll(".run")) {
      run.hidden = !run.querySelector("h4").textContent.toLowerCase().includes(wanted);
      if (wanted && !run.hidden) run.closest("details").open = true;
    }
  });
}

addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("section.paper details")) part.open = true;
});
addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".paper table").forEach(makeSortable);
  const place = document.getElementById("filter");
  if (place) addFilter(place);
  unfold();
});
