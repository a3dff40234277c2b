"""CSVSummary: what is used of a user's CSV file, shown before training."""

from dataclasses import dataclass, field

from marginctl.utils.text import shorten

SEPARATOR_NAMES = {"\t": "tab", ";": "semicolon", ",": "comma", "|": "bar"}


@dataclass
class CSVSummary:
    """What is used of a CSV file.

    Attributes:
        name: the file's name.
        separator: of its columns.
        rows: data rows in the file.
        dropped: the number of rows that are not used, by reason.
        numeric: the columns used as numbers.
        categorical: the columns used as categories, with their values.
        ignored: the columns that are not used, with the reason.
        classes: the number of used rows of each class.
        decimal_commas: the columns whose commas are decimal points.
        notes: further sentences.
    """

    name: str
    separator: str
    rows: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    numeric: list[str] = field(default_factory=list)
    categorical: dict[str, list[str]] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    decimal_commas: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        used = self.rows - sum(self.dropped.values())
        dropped = "".join(f", {n} dropped ({reason})" for reason, n in self.dropped.items())
        separator = SEPARATOR_NAMES[self.separator]
        lines = [f"{self.name}: {self.rows} rows, {separator}-separated: {used} used{dropped}"]
        classes = ", ".join(f"{c} ({n})" for c, n in self.classes.items())
        lines.append(f"  {len(self.classes)} classes: {classes}")
        if self.numeric:
            lines.append(f"  {len(self.numeric)} numeric columns: {join_names(self.numeric)}")
        if self.categorical:
            shown = [f"{c} ({len(v)} values)" for c, v in self.categorical.items()]
            lines.append(f"  {len(shown)} categorical columns, one-hot: {join_names(shown)}")
        if self.ignored:
            shown = [f"{c} ({reason})" for c, reason in self.ignored.items()]
            lines.append(f"  {len(shown)} columns not used: {join_names(shown)}")
        if self.decimal_commas:
            names = join_names(self.decimal_commas)
            lines.append(f"  commas read as decimal points in: {names}")
        return lines + [f"  {note}" for note in self.notes]


def join_names(names: list[str], limit: int = 12) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(shorten, names[:limit])) + more
