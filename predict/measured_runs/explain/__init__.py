"""A prediction compared with a profile of the same run, term by term."""
