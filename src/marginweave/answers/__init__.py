"""Service: numbers with honest intervals from released measurements alone."""
