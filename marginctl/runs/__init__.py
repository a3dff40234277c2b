"""Run directories: one folder for each trial, written atomically; a result marks it as finished."""
