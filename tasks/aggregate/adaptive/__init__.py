"""Marginals chosen in rounds, by what a model of the earlier ones gets wrong: AIM with several marginals a round."""
