"""DuckDB as an index of the run folders, which it can be rebuilt from."""
