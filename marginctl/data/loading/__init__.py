"""Loaders: normalised, augmented batches of images for training and evaluation."""
