"""From samples to time models: features, selection, intervals, artifacts and batched look-up."""
