"""Recipes: the typed schemas of the tasks, reading files, and overrides."""
