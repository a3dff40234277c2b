"""Tables of an own comparison by class: the recall of each, and a confusion matrix."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from marginctl.metrics.arrays import IntArray
from marginctl.metrics.network_metrics import MAX_RECALL_CLASSES, MAX_SHOWN_CONFUSION_CLASSES
from marginctl.reports.tables.table import Table, table_of_texts


@dataclass(frozen=True)
class ClassCounts:
    """The test samples of C classes, summed over the networks of a method.

    Attributes:
        names: of the classes.
        samples, correct: (C,) of each class.
        confusion: (C, C) by true and predicted class; None where it was not recorded.
    """

    method: str
    names: Sequence[str]
    samples: IntArray
    correct: IntArray
    confusion: IntArray | None

    def __add__(self, other: "ClassCounts") -> "ClassCounts":
        confusion = None
        if self.confusion is not None and other.confusion is not None:
            confusion = self.confusion + other.confusion
        return replace(
            self,
            samples=self.samples + other.samples,
            correct=self.correct + other.correct,
            confusion=confusion,
        )


def class_tables(
    row: str, methods: Sequence[ClassCounts], best: str, samples: str, networks: str
) -> Iterator[Table]:
    """Yield the recall of each class by every method, and the confusion matrix of the best one.

    Args:
        row: the data set.
        best: the method with a confusion matrix; empty for none.
        samples, networks: the words for both in the tables, such as `rows` and `folds`.
    """
    if not methods or len(methods[0].names) > MAX_RECALL_CLASSES:
        return
    first = methods[0]
    yield table_of_texts(
        f"{row}: recall of each class in percent, over the test {samples} of all {networks}",
        ["class", *(counts.method for counts in methods), samples],
        [
            [name, *(_recall(counts, i) for counts in methods), str(first.samples[i])]
            for i, name in enumerate(first.names)
        ],
        key=f"{row}-classes",
    )
    matrix = next((c.confusion for c in methods if c.method == best), None)
    if matrix is not None and len(first.names) <= MAX_SHOWN_CONFUSION_CLASSES:
        yield table_of_texts(
            f"{row}: true classes (rows) and predicted classes (columns) of {best}, test "
            f"{samples} of all {networks}",
            ["true class", *first.names],
            [[name, *map(str, counts)] for name, counts in zip(first.names, matrix, strict=True)],
            key=f"{row}-confusion",
        )


def _recall(counts: ClassCounts, i: int) -> str | None:
    n = counts.samples[i]
    return f"{100 * counts.correct[i] / n:.1f}" if n else None
