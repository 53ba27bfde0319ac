"""The files of a release as models, with units."""
