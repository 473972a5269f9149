"""A step in plain torch on this machine: what it does beside training, from samples of whole layers."""
