"""Printed formulas and theorems that releases do not use, as tests hold the product against them."""
