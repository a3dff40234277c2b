"""Large Margin's Fig. 4: the three divergences of two non-target classes from the uniform."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from marginctl.reports.figures.style import line

SIZE = (6.0, 3.9)  # inches
POINTS = 399
LABELS = {
    "symmetric": "symmetric: (D(q || u) + D(u || q))/2, eq. 8",
    "q-u": "q-u: D(q || u), eq. 10",
    "u-q": "u-q: D(u || q), eq. 10",
}


def divergences_of(q: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """The divergences between q and the uniform u = 1/(C - 1) (Large Margin, eqs. 8 and 10).

    Args:
        q: (..., C - 1) probabilities above 0 of the classes but the target's.

    Returns:
        In nats, (...) each, by the name of the option: D(q || u) = sum q ln(q/u) is `q-u`,
        D(u || q) = sum u ln(u/q) is `u-q`, half their sum is `symmetric`.
    """
    p = np.asarray(q, np.float64)
    u = 1 / p.shape[-1]
    of_qu = (p * np.log(p / u)).sum(-1)
    of_uq = (u * np.log(u / p)).sum(-1)
    return {"symmetric": (of_qu + of_uq) / 2, "q-u": of_qu, "u-q": of_uq}


def divergences() -> Figure:
    """The divergences of {q, 1 - q} along q. No run has a part in it."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    q = np.linspace(0, 1, POINTS + 2)[1:-1]
    found = divergences_of(np.stack([q, 1 - q], -1))
    for i, (name, values) in enumerate(found.items()):
        axes.plot(q, values, label=LABELS[name], **line(i, len(q)))
    axes.set_xlabel("probability q of one of the two classes (no unit)")
    axes.set_ylabel("divergence (nats)")
    axes.set(xlim=(0, 1), ylim=(0, None))
    axes.set_title("Divergences of {q, 1 - q} from {1/2, 1/2}; from the formulas, without a run")
    axes.legend()
    return figure
