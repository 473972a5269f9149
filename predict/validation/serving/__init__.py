"""Predictions of a server held against measured serving runs."""
