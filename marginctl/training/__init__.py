"""The training engine: trainer, classifier, optimizer, checkpoints and per-epoch metrics."""
