"""One store for a team: the tables of the embedded one in DuckLake, filled by many machines."""
