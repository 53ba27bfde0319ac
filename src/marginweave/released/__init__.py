"""Values that a release consists of: counts, measurements, the manifest of its run."""
