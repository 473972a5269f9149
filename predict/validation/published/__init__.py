"""Published, measured training runs held against predictions: `predict validate published`."""
