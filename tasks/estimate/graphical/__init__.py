"""A graphical model fitted to noisy marginals."""
