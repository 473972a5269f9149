"""A predicted step as traces that other tools read."""
