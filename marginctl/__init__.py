"""marginctl: margin and temperature losses for classification, reproduced from the command line."""

__version__ = "0.1.0"

# Raised whenever the same recipe may give another number. It is part of every trial id, so old
# results are never mixed with new ones.
NUMERICS = 3
