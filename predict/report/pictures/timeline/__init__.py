"""The timeline of a schedule as boxes over an axis."""
