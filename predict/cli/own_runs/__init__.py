"""Commands that hold a prediction against runs of one's own."""
