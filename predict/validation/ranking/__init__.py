"""The order in which predictions put measured plans, and which they say fit: `predict validate ranking`."""
