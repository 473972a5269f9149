"""The answer of a search, as text, JSON and tables."""
