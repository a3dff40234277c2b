"""Tables: the UCI data sets and a user's own CSV files."""
