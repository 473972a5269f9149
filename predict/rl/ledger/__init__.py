"""The ledger of an RL step: its phases as headings with parts of their own, and what else makes up its books."""
