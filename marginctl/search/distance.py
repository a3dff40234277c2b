"""Distances between our cross-validation tables and published ones."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from marginctl.papers import PublishedMean

Cells = Mapping[tuple[str, str], PublishedMean]


@dataclass(frozen=True)
class Distance:
    """Differences over the cells that both tables have, in percentage points of accuracy.

    The effect of a method on a data set is its cell minus the median of the row.
    """

    cells: int
    # of the means
    mean_absolute: float
    rms: float
    # of the differences divided by their standard errors
    mean_absolute_z: float
    rms_z: float
    # of the effects
    effects_mean_absolute: float
    effects_rms: float
    std_mean_absolute: float  # of the standard deviations over the folds
    # Spearman's, of the methods on a data set; the mean over the data sets
    rank_correlation: float | None
    best_agree: float  # the number of data sets with the same best method; ties count as fractions
    noise: float  # the expected mean absolute difference of two runs of one protocol


def distance(ours: Cells, published: Cells, datasets: Sequence[str] | None = None) -> Distance:
    """Return the distance between two tables."""
    rows: dict[str, list[str]] = {}
    for dataset, objective in published:
        if (dataset, objective) in ours and (datasets is None or dataset in datasets):
            rows.setdefault(dataset, []).append(objective)
    if not rows:
        raise ValueError("no cell is in both tables")
    differences, effect_differences, z, stds, noise = [], [], [], [], []
    correlations, agree = [], 0.0
    for dataset, objectives in rows.items():
        a = [ours[dataset, o] for o in objectives]
        b = [published[dataset, o] for o in objectives]
        our_means, their_means = (np.array([c.mean for c in cells]) for cells in (a, b))
        differences += list(our_means - their_means)
        effect_differences += list(effects(our_means) - effects(their_means))
        for left, right in zip(a, b, strict=True):
            error = math.sqrt(left.std**2 / left.n + right.std**2 / right.n)
            if error:
                z.append((left.mean - right.mean) / error)
            stds.append(left.std - right.std)
            noise.append(math.sqrt(4 / math.pi * right.std**2 / right.n))
        if np.ptp(our_means) and np.ptp(their_means):
            ranks = (rankdata(our_means), rankdata(their_means))
            correlations.append(float(np.corrcoef(*ranks)[0, 1]))
        ours_best, theirs_best = our_means == our_means.max(), their_means == their_means.max()
        agree += float((ours_best & theirs_best).sum() / (ours_best | theirs_best).sum())
    return Distance(
        cells=len(differences),
        mean_absolute=_mean_absolute(differences),
        rms=_rms(differences),
        mean_absolute_z=_mean_absolute(z) if z else 0.0,
        rms_z=_rms(z) if z else 0.0,
        effects_mean_absolute=_mean_absolute(effect_differences),
        effects_rms=_rms(effect_differences),
        std_mean_absolute=_mean_absolute(stds),
        rank_correlation=statistics.fmean(correlations) if correlations else None,
        best_agree=agree,
        noise=statistics.fmean(noise),
    )


def effects(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effects of the methods of a row: its cells minus their median."""
    return np.asarray(row - np.median(row))


def row_medians(published: Cells) -> Cells:
    """Return a table that ignores the methods: each cell is the median of its row."""
    rows: dict[str, list[float]] = {}
    for (dataset, _), cell in published.items():
        rows.setdefault(dataset, []).append(cell.mean)
    return {
        (dataset, objective): PublishedMean(statistics.median(rows[dataset]), cell.std, cell.n)
        for (dataset, objective), cell in published.items()
    }


def _mean_absolute(values: Sequence[float]) -> float:
    return statistics.fmean(abs(v) for v in values)


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(v * v for v in values))
