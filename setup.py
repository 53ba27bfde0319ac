"""The one thing that pyproject.toml cannot say: finding packages under another name."""

from setuptools import find_packages, setup

setup(packages=[f"marginweave.{name}" for name in find_packages(include=["flows*", "tasks*", "schemas*"])])
