"""Benchmarks behind `marginctl bench`: ratios within one run, each side at its best."""
