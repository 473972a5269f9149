"""A local page on which every knob of a config is a control, and the answer follows."""
