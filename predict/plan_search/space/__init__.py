"""The plans that a search looks through: keys with several values, and the combinations of them that are legal."""
