"""Records from a graphical model of marginals (Private-PGM)."""
