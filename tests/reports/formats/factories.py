"""A table with everything that a table can have."""

from marginctl.reports.tables.table import Cell, Row, Table, table_of_texts

TABLE = Table(
    key="arcgrad/table_1",
    title="mine (arcgrad, table I): folds=2",
    caption="Accuracy in percent: mean ± standard deviation; published values below ours.",
    label_heading="data set",
    columns=("soft", "arcgrad:scale=5"),
    rows=(
        Row(
            "iris",
            (
                Cell("65.00 ± 12.91", below="96.80 ± 6.76", below_footnotes="≠"),
                Cell("90.00 ± 8.16", best=True, footnotes="c▲", verdict="differs"),
            ),
        ),
        Row("my_data & 100%|<b>\\~^{}$#\"'\n", (None, Cell("70.00", footnotes="~"))),
        Row("average", (Cell("65.00"), Cell("80.00")), foot=True),
    ),
    notes=("≠  differs: 1 of 2 cells", "∦ ✓ · ▼ ± ž 漢"),
    details=(table_of_texts("Repeats", ["data set", "arcgrad"], [["iris", "12"]]),),
)
