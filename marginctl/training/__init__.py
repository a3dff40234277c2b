"""Training of objectives on images: batches, the loop, checkpoints, trials."""
