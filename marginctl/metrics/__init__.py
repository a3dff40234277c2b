"""Metrics of trained classifiers: arrays in, numbers out."""
