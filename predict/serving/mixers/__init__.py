"""Mixers as servers run them: one file per mixer of `predict/model/parts`, found by the same name."""
