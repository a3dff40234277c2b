"""The run store: one folder a trial, written atomically, resumed by its presence."""
