"""A trace of one rank: the names of its operators and kernels, its messages, its steps, and their time cut into slices."""
