"""k-fold cross-validation: folds, in-fold preprocessing, and the engine that trains stacks."""
