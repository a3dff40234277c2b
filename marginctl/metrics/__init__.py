"""What a trained classifier is worth: accuracy, calibration, and the angles it has learned."""
