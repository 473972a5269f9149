"""Accuracy of the time models: errors and interval coverage on held-out rows, by device."""
