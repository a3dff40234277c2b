"""Progress displays and training logs."""
