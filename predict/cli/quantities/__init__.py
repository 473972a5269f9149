"""Commands that show the quantities behind a step."""
