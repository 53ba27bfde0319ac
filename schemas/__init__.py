"""Contracts of the tables that pass between the stages, and the published JSON Schemas.

A contract is a pandera schema with types and rules of whole columns: of the raw table (`source`), the clean one (`clean`)
and the synthetic one (`records`). Codes and counts are no tables: `marginweave.domain.membership` checks them. Other models
are where they are used: `marginweave.configuration`, `marginweave.measurements`, `marginweave.released`.
"""
