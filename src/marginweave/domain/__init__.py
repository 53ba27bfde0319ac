"""Service: what public rules between columns leave of the possible records."""
