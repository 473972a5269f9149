"""Commands on servers."""
