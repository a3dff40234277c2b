"""Recipes: the typed schemas of the tasks, reading files, and overrides."""

from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.recipe.load import (
    RecipeDocument,
    RecipeFile,
    find_recipe,
    folder_name,
    load_recipe,
    read_document,
    recipes_folder,
    shipped_recipes,
    validate,
)
from marginctl.recipe.train import TrainRecipe
from marginctl.recipe.transfer import TransferRecipe
from marginctl.recipe.uci_cv import Protocol, Search, SearchRound, SearchSpace, Tuning, UciCvRecipe

__all__ = [
    "ImageRecipe",
    "Protocol",
    "RecipeDocument",
    "RecipeFile",
    "Search",
    "SearchRound",
    "SearchSpace",
    "TrainRecipe",
    "TransferRecipe",
    "Tuning",
    "UciCvRecipe",
    "find_recipe",
    "folder_name",
    "load_recipe",
    "read_document",
    "recipes_folder",
    "shipped_recipes",
    "validate",
]
