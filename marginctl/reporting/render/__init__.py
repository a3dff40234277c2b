"""Sheets in the formats that a reader takes: terminal, Markdown, LaTeX."""
