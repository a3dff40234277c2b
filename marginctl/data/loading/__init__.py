"""Batches of images for training and evaluation."""
