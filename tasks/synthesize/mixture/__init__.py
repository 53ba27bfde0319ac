"""Records from a mixture of products."""
