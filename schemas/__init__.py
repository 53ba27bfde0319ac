"""Contracts of what passes between the stages, and the published JSON Schemas.

Other models are where they are used: `marginweave.configuration`, `marginweave.measurements`, `marginweave.released`.
"""
