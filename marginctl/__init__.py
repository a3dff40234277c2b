"""marginctl: margin and temperature losses for classification, reproduced from the command line."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Raised whenever the same recipe may give another number. It is part of every trial id, so old
# results are never mixed with new ones.
NUMERICS = 4

# Imported when they are used: the command line does not wait for torch, pandas and scikit-learn.
_LAZY = {
    "MarginClassifier": "marginctl.experiments.margin_classifier",
    "load_results": "marginctl.results.data_frame",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'marginctl' has no attribute {name!r}")
