-- The index over all run folders. Its content is a function of the folders: nothing here is kept
-- only here, so a change of this file simply has the database rebuilt. A team's store has the same
-- tables (storage/team/), so this says only what DuckLake can do, too: no sequences, keys, indexes.

CREATE TABLE meta (schema VARCHAR NOT NULL);

-- A number for each experiment id. Every event carries it: of numbers, unlike of texts, the database
-- knows for each stretch of a table which ones are there, and reads no other. So a query about one
-- experiment costs the same however many others there are.
CREATE TABLE experiments (experiment_id VARCHAR NOT NULL, experiment INTEGER NOT NULL);

-- What spec.json says; it is written once and so read once.
CREATE TABLE runs (
    experiment INTEGER NOT NULL,
    run_id VARCHAR NOT NULL,
    experiment_id VARCHAR NOT NULL,
    position INTEGER NOT NULL,          -- place among the experiment's arms, baseline 0
    label VARCHAR NOT NULL,
    role VARCHAR NOT NULL,              -- baseline, control or backend
    backend VARCHAR,
    origin VARCHAR NOT NULL,            -- local or example
    num_steps BIGINT NOT NULL,
    name VARCHAR NOT NULL,              -- of the experiment, as lists call it without labels
    scenario VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    data VARCHAR NOT NULL,
    device VARCHAR NOT NULL,            -- the first that is asked for
    precision VARCHAR NOT NULL,
    batch BIGINT NOT NULL,
    backends VARCHAR[] NOT NULL,        -- those of the experiment
    schedule VARCHAR NOT NULL,
    suite_run VARCHAR,
    fallback_of VARCHAR,
    confirms VARCHAR,
    investigates VARCHAR,
    spec VARCHAR NOT NULL               -- the RunSpec as JSON
);

-- What changes while a run goes on. Times are seconds since the epoch. Each write to this table and
-- the next has a revision above all earlier ones, also across a rebuild.
CREATE TABLE progress (
    run_id VARCHAR NOT NULL,
    folder VARCHAR NOT NULL,
    data_folder VARCHAR NOT NULL,       -- of a team's store: in which it lies; else empty
    state VARCHAR NOT NULL,
    reason VARCHAR,
    claimed DOUBLE,
    ended DOUBLE,
    exit_stamp BIGINT,                  -- when exit.json was written, if there is one, in ns
    journal_offset BIGINT NOT NULL,     -- bytes of events.jsonl whose rows are below
    journal_inode UBIGINT,              -- which file of that name they are from
    last_seq BIGINT NOT NULL,           -- of the last event of it that counts, -1 before any
    left_out BIGINT NOT NULL,           -- events of it that did not come after those before
    missing BIGINT NOT NULL,            -- events that it should have had between the others
    revision BIGINT NOT NULL
);

-- What people added (labels.json), as JSON; that of an experiment's first run counts.
CREATE TABLE labels (
    run_id VARCHAR NOT NULL,
    stamp BIGINT NOT NULL,              -- when the file was written, in ns
    content VARCHAR NOT NULL,
    revision BIGINT NOT NULL
);

-- What experiments that are over came to, by revision and version of the code that computed it
-- (storage/result_caches.py).
CREATE TABLE results (
    experiment_id VARCHAR NOT NULL, name VARCHAR NOT NULL, revision BIGINT NOT NULL,
    num_runs BIGINT NOT NULL, version VARCHAR NOT NULL, content VARCHAR NOT NULL
);

CREATE TABLE unreadable (
    folder VARCHAR NOT NULL, data_folder VARCHAR NOT NULL, message VARCHAR NOT NULL
);

-- One table per kind of event (storage/index/ingest.py, EVENT_TABLES), and a column per field that is
-- read (docs/events.md). A row whose NOT NULL fields are missing is no such event and is left out.
-- What a resumption takes back is deleted (storage/index/ingest.py).
CREATE TABLE phases (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    phase VARCHAR NOT NULL
);

CREATE TABLE environments (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    host VARCHAR, platform VARCHAR, python VARCHAR, versions JSON, device_type VARCHAR,
    device_name VARCHAR,
    cpu_model VARCHAR, num_cpus BIGINT, cpu_threads BIGINT, gpu_memory_bytes BIGINT,
    cuda VARCHAR, driver VARCHAR, variables JSON, usable_cpus BIGINT, cpu_threads_reason VARCHAR,
    interop_threads BIGINT, max_sm_clock_mhz DOUBLE, power_limit_watts DOUBLE, notes JSON,
    -- A list such as 0-3,8; in device_samples their number.
    cpus VARCHAR, devices JSON
);

CREATE TABLE workloads (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    task VARCHAR, num_parameters BIGINT, num_labels BIGINT, labels JSON, num_train_samples BIGINT,
    num_eval_samples BIGINT, num_test_samples BIGINT, num_steps BIGINT, steps_per_epoch BIGINT,
    block_steps BIGINT, samples_per_step BIGINT, tokens_per_step BIGINT, padding_share DOUBLE,
    flops_per_step DOUBLE, majority_share DOUBLE, weights_sha256 VARCHAR, data_sha256 VARCHAR,
    precision VARCHAR, code_sha256 VARCHAR, uncounted JSON, notes JSON, blocks JSON,
    clock_reads JSON, buffers JSON,
    input_shapes STRUCT(
        "distinct" BIGINT, calls BIGINT, most_common BIGINT, last_new BIGINT,
        varying STRUCT(input VARCHAR, dimension BIGINT, sizes BIGINT, least BIGINT, most BIGINT)[]
    )
);

CREATE TABLE inputs (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT NOT NULL, sha256 VARCHAR, floats STRUCT(sha256 VARCHAR, rough DOUBLE[])[],
    random MAP(VARCHAR, VARCHAR), state BIGINT[], settings MAP(VARCHAR, DOUBLE[])
);

CREATE TABLE compile_starts (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT, phase VARCHAR, trigger VARCHAR, compile_id VARCHAR
);

CREATE TABLE compile_ends (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT, phase VARCHAR, trigger VARCHAR, compile_id VARCHAR, seconds DOUBLE
);

CREATE TABLE compile_metrics (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT, phase VARCHAR, compile_id VARCHAR, function VARCHAR, file VARCHAR, line BIGINT,
    dynamo_seconds DOUBLE, aot_seconds DOUBLE, inductor_seconds DOUBLE, code_seconds DOUBLE,
    kernel_seconds DOUBLE, total_seconds DOUBLE, graph_ops BIGINT, guards BIGINT,
    recompile_reason VARCHAR, failure VARCHAR, location VARCHAR, operator VARCHAR
);

CREATE TABLE compile_spans (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT, phase VARCHAR, compile_id VARCHAR,
    spans STRUCT(stage VARCHAR, name VARCHAR, start DOUBLE, seconds DOUBLE, thread BIGINT)[]
);

CREATE TABLE compile_caches (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT, phase VARCHAR,
    layers MAP(VARCHAR, STRUCT(hit BIGINT, miss BIGINT, bypass BIGINT)) NOT NULL
);

CREATE TABLE cache_keys (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    layer VARCHAR NOT NULL, key VARCHAR, reason VARCHAR, parts MAP(VARCHAR, VARCHAR)
);

CREATE TABLE graph_breaks (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT, phase VARCHAR, reason VARCHAR, operator VARCHAR, location VARCHAR,
    stopped_at VARCHAR, count BIGINT
);

CREATE TABLE steps (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    step BIGINT NOT NULL, epoch BIGINT, round BIGINT, loss DOUBLE, seconds DOUBLE,
    compiled BOOLEAN, learning_rate DOUBLE, gradient_norm DOUBLE, losses MAP(VARCHAR, DOUBLE)
);

CREATE TABLE blocks (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    round BIGINT NOT NULL, position BIGINT, first_step BIGINT NOT NULL,
    num_steps BIGINT NOT NULL, seconds DOUBLE NOT NULL, compiled BOOLEAN, warm_up BOOLEAN,
    peak_memory_bytes BIGINT, reserved_memory_bytes BIGINT, samples BIGINT, tokens BIGINT
);

CREATE TABLE device_samples (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    round BIGINT, first_step BIGINT, sm_clock_mhz DOUBLE, memory_clock_mhz DOUBLE,
    temperature_celsius DOUBLE, power_watts DOUBLE, energy_joules DOUBLE,
    energy_devices BIGINT, utilization DOUBLE,
    throttle_reasons VARCHAR[],
    throttled_seconds MAP(VARCHAR, DOUBLE), device_memory_used_bytes BIGINT,
    processes STRUCT(pid BIGINT, name VARCHAR, memory_bytes BIGINT)[],
    wall_seconds DOUBLE, cpus BIGINT, own_cpu_seconds DOUBLE, busy_cpu_seconds DOUBLE,
    stolen_cpu_seconds DOUBLE, throttled_periods BIGINT, cpu_frequency_mhz DOUBLE,
    load_average DOUBLE
);

CREATE TABLE evaluations (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    epoch BIGINT NOT NULL, step BIGINT, split VARCHAR, compiled BOOLEAN, loss DOUBLE,
    metrics MAP(VARCHAR, DOUBLE), accuracy DOUBLE, num_samples BIGINT, seconds DOUBLE,
    inputs_sha256 VARCHAR,
    answers STRUCT(error VARCHAR, compared BIGINT, differing BIGINT, wrong BIGINT,
        wrong_classes BIGINT, margin DOUBLE, difference DOUBLE, tolerance DOUBLE, ratio DOUBLE,
        samples BIGINT[])
);

CREATE TABLE checkpoints (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT NOT NULL, file VARCHAR NOT NULL, bytes BIGINT, seconds DOUBLE, value DOUBLE,
    removed VARCHAR[]
);

CREATE TABLE resumptions (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT NOT NULL, file VARCHAR, num_devices BIGINT, num_devices_before BIGINT,
    caches VARCHAR                      -- those of an earlier process; null for empty ones
);

CREATE TABLE gradient_statistics (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT NOT NULL,
    tensors STRUCT(
        name VARCHAR, norm DOUBLE, mean DOUBLE, deviation DOUBLE, largest DOUBLE, zeros DOUBLE)[]
);

CREATE TABLE own_values (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT NOT NULL, name VARCHAR NOT NULL, value DOUBLE
);

CREATE TABLE predictions (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    split VARCHAR NOT NULL, file VARCHAR NOT NULL, num_samples BIGINT NOT NULL, step BIGINT,
    answers STRUCT(error VARCHAR, compared BIGINT, differing BIGINT, wrong BIGINT,
        wrong_classes BIGINT, margin DOUBLE, difference DOUBLE, tolerance DOUBLE, ratio DOUBLE,
        samples BIGINT[])
);

CREATE TABLE stops (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    step BIGINT NOT NULL, reason VARCHAR, ending JSON
);

CREATE TABLE sources (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    source VARCHAR NOT NULL, file VARCHAR, sha256 VARCHAR
);

CREATE TABLE kept_files (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    what VARCHAR NOT NULL, compile_id VARCHAR, file VARCHAR NOT NULL, bytes BIGINT
);

CREATE TABLE accuracy_tensors (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    part VARCHAR NOT NULL, quantity VARCHAR NOT NULL, tensor VARCHAR NOT NULL,
    num_elements BIGINT, max_difference DOUBLE, rmse DOUBLE, baseline_rmse DOUBLE,
    multiplier DOUBLE, tolerance DOUBLE, scale DOUBLE, passed BOOLEAN NOT NULL
);

CREATE TABLE accuracy_statuses (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    part VARCHAR NOT NULL, status VARCHAR NOT NULL, message VARCHAR, tolerance DOUBLE,
    iterations BIGINT, notes JSON
);

CREATE TABLE profiles (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    round BIGINT NOT NULL, steps BIGINT, cost_seconds DOUBLE, seconds DOUBLE, issue_seconds DOUBLE,
    busy_seconds DOUBLE, underfilled_seconds DOUBLE, launches DOUBLE,
    host_seconds MAP(VARCHAR, DOUBLE), waited_seconds DOUBLE[], compiled BOOLEAN, trace VARCHAR, trace_bytes BIGINT,
    failure VARCHAR
);

CREATE TABLE profile_kernels (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    round BIGINT NOT NULL, name VARCHAR NOT NULL, op VARCHAR, phase VARCHAR, dtype VARCHAR,
    calls DOUBLE, seconds DOUBLE NOT NULL
);

-- Of runs on several devices: a row for each rank.
CREATE TABLE rank_blocks (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    round BIGINT NOT NULL, first_step BIGINT NOT NULL, rank BIGINT NOT NULL,
    seconds DOUBLE NOT NULL, cpu_seconds DOUBLE, peak_memory_bytes BIGINT,
    reserved_memory_bytes BIGINT, losses DOUBLE[], weights_sha256 VARCHAR, shards_sha256 VARCHAR,
    weights_size DOUBLE, compile_seconds DOUBLE
);

CREATE TABLE rank_profiles (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    round BIGINT NOT NULL, rank BIGINT NOT NULL, compute_seconds DOUBLE,
    communication_seconds DOUBLE, exposed_seconds DOUBLE
);

CREATE TABLE collectives (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    round BIGINT NOT NULL, rank BIGINT NOT NULL, name VARCHAR NOT NULL, calls DOUBLE,
    sent_bytes DOUBLE, seconds DOUBLE
);

CREATE TABLE random_numbers (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    same BOOLEAN, num_draws BIGINT, same_seed DOUBLE, other_seeds DOUBLE, loss_by_draw DOUBLE[],
    inference_draws BOOLEAN, error VARCHAR
);

CREATE TABLE redraws (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    tensor VARCHAR NOT NULL, change DOUBLE, distances DOUBLE[]
);

CREATE TABLE rehearsals (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    form VARCHAR, loss_by_step DOUBLE[], reason VARCHAR
);

CREATE TABLE dropouts (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    compiled BOOLEAN NOT NULL, number BIGINT NOT NULL, operation VARCHAR NOT NULL, p DOUBLE NOT NULL,
    tried BIGINT NOT NULL, zeros BIGINT NOT NULL, sum DOUBLE NOT NULL, squares DOUBLE NOT NULL,
    backward DOUBLE NOT NULL
);

-- Of an investigation: a row for each trial, and what is known after each stage of the search.
CREATE TABLE investigation_trials (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    number BIGINT NOT NULL, stage VARCHAR NOT NULL, what VARCHAR NOT NULL, outcome VARCHAR NOT NULL,
    detail VARCHAR, step BIGINT, trial_seconds DOUBLE
);

CREATE TABLE investigation_findings (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    cause VARCHAR NOT NULL, compiler_stage VARCHAR, subsystem VARCHAR, subsystem_number BIGINT,
    operation VARCHAR, labels JSON, problem VARCHAR, step BIGINT, quantity VARCHAR, tensor VARCHAR,
    max_error DOUBLE, allowed_error DOUBLE, error VARCHAR, traceback VARCHAR, graph BIGINT,
    num_graphs BIGINT, program VARCHAR, num_nodes BIGINT, program_tries BIGINT,
    program_fails BIGINT, program_passes BIGINT, program_note VARCHAR, environment VARCHAR,
    generated_code VARCHAR
);

CREATE TABLE errors (
    experiment INTEGER NOT NULL, run_id VARCHAR NOT NULL, seq BIGINT NOT NULL,
    time DOUBLE NOT NULL,
    error VARCHAR, message VARCHAR, traceback VARCHAR, out_of_memory BOOLEAN
);

-- What follows are views of one experiment, the one with the number `wanted`. Its rows are picked
-- before anything is computed: a window over a whole table would have every experiment pay for all.

-- A run's attempts: 1 is its first process, each resumption begins the next one. One that begins
-- anew leaves nothing of those before it, and is the first of all that counts. The rows of an attempt
-- have numbers above `seq`, up to `last_seq`: joined so, not with ASOF, which sorts all rows.
CREATE MACRO attempts(wanted) AS TABLE
SELECT * EXCLUDE (anew),
    1 + count(*) FILTER (step > 0) OVER (PARTITION BY run_id, anew ORDER BY seq) AS attempt,
    coalesce(lead(seq) OVER (PARTITION BY run_id ORDER BY seq), 9223372036854775807) AS last_seq
FROM (
    SELECT *, count(*) FILTER (step = 0) OVER (PARTITION BY run_id ORDER BY seq) AS anew
    FROM resumptions WHERE experiment = wanted);

-- Journals from before there were phases and attempts tell of training.
CREATE MACRO judged_frames(wanted) AS TABLE
SELECT f.* REPLACE (coalesce(f.phase, 'training') AS phase), coalesce(a.attempt, 1) AS attempt
FROM (FROM compile_metrics WHERE experiment = wanted) f
LEFT JOIN attempts(wanted) a
    ON a.run_id = f.run_id AND f.seq > a.seq AND f.seq <= a.last_seq;

-- Where several devices share a run, torch itself makes breaks: Dynamo splits graphs where the buckets
-- of DDP end, and does not trace the code that gathers weights and averages gradients.
CREATE MACRO judged_graph_breaks(wanted) AS TABLE
SELECT g.* REPLACE (coalesce(g.phase, 'training') AS phase), coalesce(a.attempt, 1) AS attempt,
    CASE WHEN starts_with(reason, 'DDPOptimizer ') THEN 'buckets'
        WHEN starts_with(stopped_at, 'torch/nn/parallel/')
            OR starts_with(stopped_at, 'torch/distributed/')
            OR contains(reason, '`DistributedDataParallel.') THEN 'ranks'
        ELSE 'code' END AS cause
FROM (FROM graph_breaks WHERE experiment = wanted) g
LEFT JOIN attempts(wanted) a
    ON a.run_id = g.run_id AND g.seq > a.seq AND g.seq <= a.last_seq;

-- Journals from before there were splits judged the validation split, without a compiler, by loss
-- and accuracy. Of two evaluations of the same, the later one counts.
CREATE MACRO judged_evaluations(wanted) AS TABLE
SELECT * REPLACE (
    coalesce(split, 'validation') AS split,
    coalesce(compiled, false) AS compiled,
    coalesce(metrics, MAP {'accuracy': accuracy}) AS metrics)
FROM evaluations WHERE experiment = wanted
QUALIFY seq = max(seq) OVER (
    PARTITION BY run_id, epoch, step, coalesce(split, 'validation'), coalesce(compiled, false));
