"""Data sets: their definitions, and reading them from their original files."""
