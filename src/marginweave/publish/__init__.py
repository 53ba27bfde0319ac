"""Files and pages of a release."""
