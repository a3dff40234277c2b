"""Progress on stderr and training logs for TensorBoard."""
