"""The tasks: from a recipe to trials, run directories and results."""
