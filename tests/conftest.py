"""Profiles of the property tests: `--hypothesis-profile=long` looks much longer."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile("default")
