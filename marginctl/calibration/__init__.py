"""Post-hoc calibration: maps from a classifier's outputs to probabilities that mean more."""
