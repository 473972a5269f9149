"""The time of a step item by item, and its sums by heading."""
