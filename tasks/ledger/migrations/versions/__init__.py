"""One module a version of the tables; a published one is never changed."""
