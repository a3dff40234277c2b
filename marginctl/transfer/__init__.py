"""Transfer learning: cached features of a pretrained backbone, and linear probes on them."""
