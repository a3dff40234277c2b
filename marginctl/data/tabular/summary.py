"""TableSummary: what is used of a table, shown and recorded before training."""

from dataclasses import dataclass, field
from typing import Any

from marginctl.data.tabular.columns import ReadColumn


@dataclass
class TableSummary:
    """What is used of a table.

    Attributes:
        name: the file's name.
        form: how the file is written, such as `comma-separated`.
        rows: data rows in the file.
        rows_used: of them, those that are used.
        classes: the number of used rows of each class.
        columns: the feature columns, the unused ones included.
        remarks: what was dropped, guessed or may be wrong, a sentence each.
    """

    name: str
    form: str
    rows: int = 0
    rows_used: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    columns: list[ReadColumn] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the document of `data inspect --json`."""
        return {
            "kind": "table",
            "rows": self.rows,
            "rows_used": self.rows_used,
            "classes": [{"name": name, "count": count} for name, count in self.classes.items()],
            "columns": [
                {
                    "name": column.name,
                    "type": column.type,
                    "used": column.used,
                    "missing": column.missing,
                    "categories": list(column.categories),
                }
                for column in self.columns
            ],
            "remarks": self.remarks,
        }
