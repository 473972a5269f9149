"""The commands that show: a page of plans, and one picture."""
