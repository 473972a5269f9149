"""The parts of a decoder's layers, one file each: shape and parameters, calls in training, saved tensors, cache and calls in serving."""
