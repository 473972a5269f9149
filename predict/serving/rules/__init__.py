"""Rules between keys of a serving config."""
