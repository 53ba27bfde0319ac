"""Rules between columns, and the search for records that keep them."""
