"""A sheet with everything that a sheet can have."""

from marginctl.reports.tables.table import Entry, Row, Sheet

SHEET = Sheet(
    key="arcgrad/table_1",
    title="mine (arcgrad, table I): folds=2",
    caption="Accuracy in percent: mean ± standard deviation; published values below ours.",
    corner="data set",
    columns=("soft", "arcgrad:scale=5"),
    rows=(
        Row(
            "iris",
            (
                Entry("65.00 ± 12.91", below="96.80 ± 6.76", below_marks="≠"),
                Entry("90.00 ± 8.16", best=True, marks="c▲", verdict="differs"),
            ),
        ),
        Row("my_data & 100%|<b>\\~^{}$#\"'\n", (None, Entry("70.00", marks="~"))),
        Row("average", (Entry("65.00"), Entry("80.00")), foot=True),
    ),
    notes=("≠  differs: 1 of 2 cells", "∦ ✓ · ▼ ± ž 漢"),
    lists=(("Repeats", [["data set", "arcgrad"], ["iris", "12"]]),),
)
