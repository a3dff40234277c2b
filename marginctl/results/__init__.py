"""From run directories to cells, statistics and verdicts. Data in, data out."""
