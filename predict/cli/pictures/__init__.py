"""Commands that draw: pages of plans, single pictures, traces."""
