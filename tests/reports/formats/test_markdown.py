"""A table as Markdown, to the letter."""

from marginctl.reports.formats.markdown import escaped, markdown
from marginctl.reports.tables.table import Table
from tests.reports.formats.factories import TABLE


def test_golden():
    assert markdown(TABLE) == (
        "| data set | `soft` | `arcgrad:scale=5` |\n"
        "|---|---:|---:|\n"
        "| iris | 65.00 ± 12.91 (≠ 96.80 ± 6.76) | **90.00** ± 8.16 <sup>c▲</sup> |\n"
        "| my\\_data & 100%\\|\\<b\\>\\\\~^{}$#\"' |  | 70.00 <sup>~</sup> |\n"
        "| average | 65.00 | 80.00 |\n"
        "\n"
        "Accuracy in percent: mean ± standard deviation; published values in brackets.\n"
        "\n"
        "- ≠  differs: 1 of 2 cells\n"
        "- ∦ ✓ · ▼ ± ž 漢\n"
        "\n"
        "Repeats:\n"
        "\n"
        "| data set | arcgrad |\n"
        "|---|---:|\n"
        "| iris | 12 |"
    )


def test_without_rows_the_notes_remain():
    empty = Table("k", "t", "c", "", (), (), ("skipped 1: iris: no files",))
    assert markdown(empty) == "skipped 1: iris: no files"


def test_a_name_is_no_markup():
    assert escaped("a|b\nc *d* <script>`") == "a\\|b c \\*d\\* \\<script\\>\\`"
