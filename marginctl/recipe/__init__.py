"""Recipes: the typed schemas of the tasks, reading them, and overrides."""

from marginctl.recipe.crossval import Protocol, Recipe, Round, Search, Space, Tuning
from marginctl.recipe.load import (
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

__all__ = [
    "Protocol",
    "Recipe",
    "Round",
    "Search",
    "Source",
    "Space",
    "TrainRecipe",
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
