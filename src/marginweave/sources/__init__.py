"""Reads tables: CSV, Parquet, Arrow, sheets, S3."""
