"""Shared helpers: seeds, devices, precision, distributed processes, YAML and text."""
