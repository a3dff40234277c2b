"""Large Margin's Fig. 4: divergences of two non-target classes from the uniform distribution."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from marginctl.reports.figures.seed_groups import Omissions, SeedTable
from marginctl.reports.figures.style import line_style

SIZE = (6.0, 3.9)  # inches
POINTS = 399
LABELS = {
    "symmetric": "symmetric: (D(q || u) + D(u || q))/2, eq. 8",
    "q-u": "q-u: D(q || u), eq. 10",
    "u-q": "u-q: D(u || q), eq. 10",
}


def compute_divergences(q: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """Return the divergences between q and the uniform u = 1/(C - 1) (Large Margin, eqs. 8, 10).

    Args:
        q: (..., C - 1) positive probabilities of the non-target classes.

    Returns:
        In nats, (...) each, by the name of the option: D(q || u) = sum q ln(q/u) is `q-u`,
        D(u || q) = sum u ln(u/q) is `u-q`, half their sum is `symmetric`.
    """
    p = np.asarray(q, np.float64)
    u = 1 / p.shape[-1]
    q_u = (p * np.log(p / u)).sum(-1)
    u_q = (u * np.log(u / p)).sum(-1)
    return {"symmetric": (q_u + u_q) / 2, "q-u": q_u, "u-q": u_q}


def divergences(_tables: Sequence[SeedTable], _omissions: Omissions) -> Figure:
    """Draw the divergences of {q, 1 - q} along q; no run is needed."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    q = np.linspace(0, 1, POINTS + 2)[1:-1]
    for i, (name, values) in enumerate(compute_divergences(np.stack([q, 1 - q], -1)).items()):
        axes.plot(q, values, label=LABELS[name], **line_style(i, len(q)))
    axes.set_xlabel("probability q of one of the two classes (no unit)")
    axes.set_ylabel("divergence (nats)")
    axes.set(xlim=(0, 1), ylim=(0, None))
    axes.set_title("Divergences of {q, 1 - q} from {1/2, 1/2} (formulas; no runs)")
    axes.legend()
    return figure
