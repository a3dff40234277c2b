"""Trained networks on other images: linear probes on frozen features, and fine-tuning."""
