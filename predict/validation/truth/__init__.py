"""The columns of a table of measured runs: their declaration, its checks, its schema."""
