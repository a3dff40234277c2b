"""One module per backbone architecture."""
