"""Questions on a server that is to be set up: the rate at which objectives hold, and what its tokens cost."""
