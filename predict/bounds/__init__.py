"""The speed of light of a module or a step: the least time that the peaks of a device leave it."""
