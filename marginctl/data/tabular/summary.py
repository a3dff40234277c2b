"""What was made of a user's own file, for the user to read before anything is trained."""

from dataclasses import dataclass, field

from marginctl.utils.text import short


@dataclass
class CSVSummary:
    """What was made of a file: shown before training.

    Attributes:
        rows: data rows in the file.
        dropped: how many of them were left out, by reason.
        numeric, categorical: names of the columns that are used; a category has its values.
        ignored: names of the columns that are not, each with the reason.
        classes: rows of each class, of those that are used.
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
    remarks: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        separator = {"\t": "tab", ";": "semicolon", ",": "comma", "|": "bar"}[self.separator]
        used = self.rows - sum(self.dropped.values())
        dropped = "".join(f", {n} dropped ({why})" for why, n in self.dropped.items())
        lines = [f"{self.name}: {self.rows} rows, {separator}-separated: {used} used{dropped}"]
        classes = ", ".join(f"{c} ({n})" for c, n in self.classes.items())
        lines.append(f"  {len(self.classes)} classes: {classes}")
        if self.numeric:
            lines.append(f"  {len(self.numeric)} numeric columns: {join_names(self.numeric)}")
        if self.categorical:
            shown = [f"{c} ({len(v)} values)" for c, v in self.categorical.items()]
            lines.append(f"  {len(shown)} categories, one-hot: {join_names(shown)}")
        if self.ignored:
            shown = [f"{c} ({why})" for c, why in self.ignored.items()]
            lines.append(f"  {len(shown)} columns not used: {join_names(shown)}")
        if self.decimal_commas:
            lines.append(f"  commas read as decimal points in: {join_names(self.decimal_commas)}")
        return lines + [f"  {remark}" for remark in self.remarks]


def join_names(names: list[str], most: int = 12) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(short, names[:most])) + more
