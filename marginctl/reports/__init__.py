"""From run records to the tables that people read."""
