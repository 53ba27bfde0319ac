"""How accurate synthetic records are: our methods and peers on the same tables."""
