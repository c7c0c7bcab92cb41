-- The index over all run folders. Its content is a function of the folders: nothing here is kept
-- only here, so a change of this file simply has the database rebuilt.

CREATE TABLE meta (schema VARCHAR NOT NULL);

-- What spec.json says; it is written once and so read once.
CREATE TABLE runs (
    run_id VARCHAR NOT NULL,
    experiment_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,          -- place among the experiment's variants, baseline 0
    label VARCHAR NOT NULL,
    role VARCHAR NOT NULL,              -- baseline, control or backend
    backend VARCHAR,
    origin VARCHAR NOT NULL,            -- local or example
    num_steps BIGINT NOT NULL,
    spec VARCHAR NOT NULL               -- the RunSpec as JSON
);

-- Numbers the writes to table progress, also across a rebuild.
CREATE SEQUENCE revisions;

-- What changes while a run goes on. Times are seconds since the epoch.
CREATE TABLE progress (
    run_id VARCHAR NOT NULL,
    folder VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    reason VARCHAR,
    claimed DOUBLE,
    ended DOUBLE,
    settled BOOLEAN NOT NULL,           -- exit.json was read: the state will not change again
    journal_offset BIGINT NOT NULL,     -- bytes of events.jsonl whose rows are below
    revision BIGINT NOT NULL DEFAULT nextval('revisions')
);

CREATE TABLE unreadable (folder VARCHAR NOT NULL, message VARCHAR NOT NULL);

-- One table per kind of event, a column per field (docs/events.md). A row whose NOT NULL fields
-- are missing is no such event and is left out.
CREATE TABLE phases (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    phase VARCHAR NOT NULL
);

CREATE TABLE environments (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    host VARCHAR, platform VARCHAR, python VARCHAR, versions JSON, device_name VARCHAR,
    cpu_model VARCHAR, num_cpus BIGINT, cpu_threads BIGINT, gpu_memory_bytes BIGINT,
    cuda VARCHAR, driver VARCHAR, variables JSON
);

CREATE TABLE workloads (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    num_parameters BIGINT, num_labels BIGINT, labels JSON, num_train_samples BIGINT,
    num_eval_samples BIGINT, num_steps BIGINT, steps_per_epoch BIGINT, block_steps BIGINT,
    samples_per_step BIGINT, tokens_per_step BIGINT, majority_share DOUBLE,
    weights_sha256 VARCHAR, data_sha256 VARCHAR, notes JSON
);

CREATE TABLE compile_starts (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    step BIGINT, phase VARCHAR, trigger VARCHAR, compile_id VARCHAR
);

CREATE TABLE compile_ends (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    step BIGINT, phase VARCHAR, trigger VARCHAR, compile_id VARCHAR, seconds DOUBLE
);

CREATE TABLE compile_metrics (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    step BIGINT, compile_id VARCHAR, function VARCHAR, file VARCHAR, line BIGINT,
    dynamo_seconds DOUBLE, aot_seconds DOUBLE, inductor_seconds DOUBLE, code_seconds DOUBLE,
    total_seconds DOUBLE, graph_ops BIGINT, guards BIGINT, recompile_reason VARCHAR,
    failure VARCHAR
);

CREATE TABLE graph_breaks (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    step BIGINT, reason VARCHAR, location VARCHAR, count BIGINT
);

CREATE TABLE steps (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    step BIGINT NOT NULL, epoch BIGINT, round BIGINT, loss DOUBLE, seconds DOUBLE,
    compiled BOOLEAN, learning_rate DOUBLE, gradient_norm DOUBLE
);

CREATE TABLE blocks (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    round BIGINT NOT NULL, position BIGINT, first_step BIGINT NOT NULL,
    num_steps BIGINT NOT NULL, seconds DOUBLE NOT NULL, compiled BOOLEAN,
    peak_memory_bytes BIGINT, reserved_memory_bytes BIGINT
);

CREATE TABLE evaluations (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    epoch BIGINT NOT NULL, step BIGINT, loss DOUBLE, accuracy DOUBLE, num_samples BIGINT,
    seconds DOUBLE
);

CREATE TABLE errors (
    run_id VARCHAR NOT NULL, seq BIGINT NOT NULL, time DOUBLE NOT NULL,
    error VARCHAR, message VARCHAR, traceback VARCHAR, out_of_memory BOOLEAN
);

-- The one definition of "steady": nothing compiled, and not the run's first block.
CREATE VIEW judged_blocks AS
SELECT * EXCLUDE (compiled), coalesce(compiled, false) AS compiled,
    NOT coalesce(compiled, false)
    AND first_step > min(first_step) OVER (PARTITION BY run_id) AS steady
FROM blocks;

-- A step is steady if its block is. A step whose block has not arrived yet is not.
CREATE VIEW judged_steps AS
SELECT s.* EXCLUDE (compiled), coalesce(s.compiled, false) AS compiled,
    coalesce(b.steady, false) AS steady
FROM steps s
LEFT JOIN judged_blocks b
    ON b.run_id = s.run_id AND b.round = s.round
    AND s.step >= b.first_step AND s.step < b.first_step + b.num_steps;
