"""Configurations: parsed from their files, completed with defaults, and checked."""
