"""Stages of a release: each opens the result of the stage before, checks it, calls the library, and writes its own result."""
