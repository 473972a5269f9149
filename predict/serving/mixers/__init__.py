"""Mixers as servers run them: one file per mixer of `predict/layers`, found by the same name."""
