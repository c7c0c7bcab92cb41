"""One store for a team: the tables of `storage/index/schema.sql` in DuckLake, filled by many machines."""
