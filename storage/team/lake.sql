-- What a team's store has besides the tables of storage/index/schema.sql.

-- The data folders that feed it, each with the machine that registered it.
CREATE TABLE data_folders (
    data_folder VARCHAR NOT NULL, host VARCHAR NOT NULL, path VARCHAR NOT NULL,
    registered DOUBLE NOT NULL
);

-- Which tables of events have rows of an experiment, or had: to ask one that has none takes longer
-- than to read one that has.
CREATE TABLE present (experiment INTEGER NOT NULL, name VARCHAR NOT NULL);
