"""The answer of a search: the plans ranked, which of them are tied, and the front of time, memory and GPUs."""
