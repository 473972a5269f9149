"""Tensors that each part of a layer keeps for its backward.

`saved_tensors` of the file that has the part's name in `predict/model/parts`, from the norm before the part to its last tensor.
"""
