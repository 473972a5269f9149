"""`predict validate`, by what is held against what."""
