"""Published, measured runs beside predictions, as tables for a terminal."""
