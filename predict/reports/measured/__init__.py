"""Real steps, and predictions beside them, for a reader in a terminal."""
