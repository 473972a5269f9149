"""The ledger of a step as text, JSON and a long table."""
