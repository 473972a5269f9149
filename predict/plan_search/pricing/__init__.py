"""Pricing plans in full: batches of them, on the cores and machines that the user names."""
