"""Reads run folders into DuckDB and computes every number that Breakeven shows.

The database is an index: it is filled from the run folders, and can be dropped and rebuilt from
them at any time. Nothing here imports torch, streamlit or plotly.
"""
