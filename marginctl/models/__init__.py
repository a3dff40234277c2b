"""Backbones: networks that map images to features; the objective owns the classifier."""
