"""The ledger of an RL step: its phases as headings with parts, and its other books."""
