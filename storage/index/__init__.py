"""The DuckDB index of the run folders; it can be rebuilt from them."""
