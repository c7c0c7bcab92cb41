"""A team's shared store: the tables of the embedded store in DuckLake, written by many machines."""
