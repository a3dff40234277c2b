"""Figures: the kinds that `report --figures` draws of trained runs, and those of other commands."""

KINDS = ("curves", "rho", "angles", "kappa", "sweep", "reliability", "divergences")
