"""A server under loads, and questions on one that is to be set up: the rate at which objectives hold, and what its tokens cost."""
