"""Tables that tests write, and short ways to read them."""

import io
import zipfile

import pandas as pd

from marginctl.data.tabular.custom import (
    ReadOptions,
    read_table,
)

PLAIN = "a,b,class\n" + "".join(f"{i * 0.5},{i % 7},{'xy'[i % 2]}\n" for i in range(20))


def summary_of(path, target="class", **options):
    return read_table(path, target, ReadOptions(**options)).summary


def types(summary):
    return {column.name: column.type for column in summary.columns}


def column(summary, name):
    return next(column for column in summary.columns if column.name == name)


def every_line(text, change):
    return "".join(change(i, line) + "\n" for i, line in enumerate(text.splitlines()))


def workbook():
    stream = io.BytesIO()
    rows = [line.split(",") for line in PLAIN.splitlines()]
    values = [[float(c) if i and j < 2 else c for j, c in enumerate(r)] for i, r in enumerate(rows)]
    pd.DataFrame(values).to_excel(stream, header=False, index=False)
    return stream.getvalue()


def zipped(name="t.csv"):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), PLAIN)
    return stream.getvalue()
