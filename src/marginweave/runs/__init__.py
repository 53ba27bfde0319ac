"""One run: its request, its preparation, its progress and its books."""
