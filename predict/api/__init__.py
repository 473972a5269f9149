"""The functions behind `predict`'s public names. Each imports what it needs when it is called, so that a question loads its own parts alone."""
