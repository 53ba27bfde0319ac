"""Files of a release as models, with units."""
