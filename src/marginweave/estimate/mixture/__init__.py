"""A weighted mixture of products of independent columns, fitted to noisy marginals."""
