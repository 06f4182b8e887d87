"""Device facts with their sources, one file an architecture and one a product."""
