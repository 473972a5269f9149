"""A predicted step as execution traces of MLCommons Chakra, from which ASTRA-sim and others simulate its network."""
