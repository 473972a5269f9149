"""Measured memory of runs held against predictions: `predict validate memory`."""
