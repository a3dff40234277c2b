"""Figures of runs, of objectives and of calibration."""
