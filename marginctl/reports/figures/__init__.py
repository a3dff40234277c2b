"""Figures: the kinds that `report --figures` draws of trained runs, and those of other commands."""

KINDS = (
    "curves",
    "rho",
    "angles",
    "kappa",
    "example",
    "sweep",
    "options",
    "reliability",
    "detection",
    "kappa-classes",
    "divergences",
    "curriculum",
    "lipschitz",
)
"""The figures of a run store: a file for each table and kind that the runs allow, but one for all
tables of `kappa-classes`, and one of `divergences`."""
