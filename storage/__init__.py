"""Reads run folders into DuckDB and computes all numbers that Breakeven shows.

The database is an index of the run folders and can be rebuilt from them at any time. Nothing here
imports torch, streamlit or plotly.
"""
