"""Recipes: the typed schemas of the tasks, reading them, and overrides."""

from marginctl.recipe.cosify import CosifyRecipe
from marginctl.recipe.load import (
    TASKS,
    Source,
    check,
    copy,
    find,
    load,
    load_any,
    load_as,
    shipped,
    shipped_folder,
    stored_name,
    summaries,
)
from marginctl.recipe.train import TrainRecipe
from marginctl.recipe.transfer import TransferRecipe
from marginctl.recipe.uci_cv import Protocol, Recipe, Round, Search, Space, Tuning

__all__ = [
    "TASKS",
    "CosifyRecipe",
    "Protocol",
    "Recipe",
    "Round",
    "Search",
    "Source",
    "Space",
    "TrainRecipe",
    "TransferRecipe",
    "Tuning",
    "check",
    "copy",
    "find",
    "load",
    "load_any",
    "load_as",
    "shipped",
    "shipped_folder",
    "stored_name",
    "summaries",
]
