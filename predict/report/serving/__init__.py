"""Reports on servers."""
