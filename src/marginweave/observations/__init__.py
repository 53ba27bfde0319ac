"""Observations: noisy counts, by draws of this release, earlier releases and declared tables. All of it is public."""
