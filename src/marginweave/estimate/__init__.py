"""Estimates of a distribution from noisy counts alone: post-processing."""
