"""Planned draws of a release, and the tables that were measured."""
