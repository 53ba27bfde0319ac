"""The files and pages of a release."""
