"""A prediction held against a profile of the same run, term by term."""
