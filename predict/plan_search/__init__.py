"""The choice of a plan for a model on a cluster."""
