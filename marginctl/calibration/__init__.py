"""Post-hoc calibration: methods, fitted calibrators, and their evaluation on held-out samples."""
