"""Image data sets: registry, readers, and definitions of parts and subsets."""
