"""The benchmarks of `marginctl bench`, each against alternatives."""
