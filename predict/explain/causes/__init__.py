"""Causes: what makes a measured step another than the predicted one, by the part of the step that shows it."""
