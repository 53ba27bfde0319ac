"""Configurations of releases: what users write, its rules, and what follows from it."""
