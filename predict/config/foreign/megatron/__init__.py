"""Megatron-LM's arguments, and the overrides of Megatron-Bridge that stand for them."""
