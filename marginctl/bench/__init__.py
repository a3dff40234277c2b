"""The benchmarks of `marginctl bench`, each against what one would use instead."""
