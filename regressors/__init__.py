"""Time models fitted to samples: features, selection, intervals, artifacts and batched look-up."""
