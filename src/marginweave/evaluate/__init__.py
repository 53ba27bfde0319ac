"""How well the records keep the counts, and how good the release is."""
