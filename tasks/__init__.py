"""The stages: each opens what the one before has written, checks it, calls the library, and writes what it made."""
