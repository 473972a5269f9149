"""Measured runs of one's own: their logs and traces read and compared with predictions, records that show drift, terms fitted to them."""
