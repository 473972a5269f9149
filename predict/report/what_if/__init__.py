"""What-if answers as text and JSON."""
