"""Queries for the records of runs: each name here is a function of a store and an experiment id."""

from breakeven.runner.protocol.records import MAX_TIME
from breakeven.storage.queries.rows import IN_EXPERIMENT, RECORDED, query

FROM_ONE = f"{RECORDED} REPLACE (round + 1 AS round)"
"""All fields, and rounds that count from 1."""

environments = query(
    "environments", json=("versions", "variables", "notes", "devices"), only_last=True
)
"""Machine and software of each run; `notes` is a list, `versions` and `variables` are
dictionaries."""
workloads = query(
    "workloads",
    json=("labels", "uncounted", "notes", "blocks", "clock_reads", "buffers"),
    only_last=True,
)
"""Model and data of each run; labels, uncounted, notes, clock_reads and buffers are lists."""
inputs = query("inputs", order="step")
"""Inputs of scripts: step; sha256 of the compiled function's arguments except floats (null without
a tensor); floats: floating-point tensors (sha256, rough: numbers that hardly change if the tensor
hardly changes); random (a map: generator to a hash of its state); state (places of the floats that
are state of the training, known without a compiler); settings (a map: optimizer and setting, such
as `0.lr`, to its distinct values)."""
sources = query(
    f"""(SELECT run_id, source, file, sha256, min(seq) AS seq FROM sources WHERE {IN_EXPERIMENT}
        GROUP BY run_id, source, file, sha256)""",
    "source, file, sha256",
    event_tables=("sources",),
)
"""The user's Python files that each run executed: source, file (the copy), sha256. A file that was
changed before a resumption has both versions."""
checkpoints = query(
    f"""(SELECT c.* REPLACE (EXISTS (
            FROM checkpoints later
            WHERE later.{IN_EXPERIMENT} AND later.run_id = c.run_id AND later.seq > c.seq
                AND list_contains(later.removed, c.file)) AS removed)
        FROM checkpoints c WHERE c.{IN_EXPERIMENT})""",
    "step, file, bytes, seconds, value, removed",
    event_tables=("checkpoints",),
)
"""step (steps done), file, bytes, seconds, value, removed. `value` is the metric that ranks
checkpoints, missing without an evaluation. `removed` is whether a later checkpoint replaced this
one."""
stops = query("stops")
"""step (steps done) and reason of runs that ended before the last step by their own rules. If
measuring ended by itself, also `ending`, as JSON, missing in older journals."""

# Steps and blocks.
wrong_losses = query(
    f"""(SELECT run_id, min(step) AS step FROM steps WHERE {IN_EXPERIMENT} AND NOT isfinite(loss)
        GROUP BY run_id)""",
    "step",
    "step",
)
"""The first step with a loss that is not finite, for each run that has one."""
step_times = query(
    "judged_steps($1)",
    "step, epoch + 1 AS epoch, round + 1 AS round, loss, seconds, compiled, attempt, steady",
    "step",
    many=True,
)
"""step, epoch, round, loss, seconds, compiled, attempt, steady of every step."""
step_settings = query("steps", "step, learning_rate, gradient_norm", "step", many=True)
"""step, learning_rate, gradient_norm of every step. Unrecorded values are missing; a gradient norm
may be infinite."""
blocks = query(
    "judged_blocks($1)",
    "round + 1 AS round, position, first_step, num_steps, seconds, compiled, attempt, steady, "
    "starts_later, peak_memory_bytes, reserved_memory_bytes, samples, tokens",
    "first_step",
    many=True,
)
"""The block of every turn: round, first_step, num_steps, seconds, compiled, steady, memory; for
scripts also samples and tokens, missing if not reported. `attempt` is 1 for a run's first process
and increases with each resumption. `starts_later`: in a process that began with the compile caches
of the first one, and only times that."""
loss_terms = query(
    f"""(SELECT run_id, step, unnest(map_entries(losses), recursive := true)
        FROM steps WHERE {IN_EXPERIMENT})""",
    "step, key AS name, value",
    "step, name",
)
"""step, name, value of every term of the loss, before weighting; empty if the loss has only one."""
gradient_statistics = query(
    f"""(SELECT run_id, step, generate_subscripts(tensors, 1) AS number,
            unnest(tensors, recursive := true)
        FROM gradient_statistics WHERE {IN_EXPERIMENT})""",
    "step, name, norm, mean, deviation, largest, zeros",
    "step, number",
    event_tables=("gradient_statistics",),
)
"""One row per step and parameter: step, name, norm, mean, deviation, largest, zeros. `zeros` is the
share of elements that are exactly 0."""
own_values = query(
    f"""(FROM own_values WHERE {IN_EXPERIMENT}
        QUALIFY seq = max(seq) OVER (PARTITION BY run_id, step, name))""",
    "step, name, value",
    "name, step",
    event_tables=("own_values",),
)
"""step, name, value of the numbers that callbacks recorded; the last one of a step counts."""

# Records of the compiler.
compiles = query("compile_ends")
"""All finished compilations; `phase` is training or evaluating."""
compile_metrics = query(
    "judged_frames($1)",
    "step, phase, attempt, compile_id, function, file, line, dynamo_seconds, aot_seconds, "
    "inductor_seconds, code_seconds, kernel_seconds, total_seconds, graph_ops, guards, "
    "recompile_reason, failure, location, operator",
    event_tables=("compile_metrics",),
)
"""Dynamo's report on every compiled frame, with phase and attempt. failure: why Dynamo gave up on
it; location: the line in the user's code, and operator: what could not be traced."""
compile_spans = query(
    f"""(SELECT run_id, step, coalesce(phase, 'training') AS phase, compile_id,
            span.stage AS stage, left(span.name, 200) AS name, span.start AS start,
            span.seconds AS seconds, span.thread AS thread
        FROM (SELECT *, unnest(spans) AS span FROM compile_spans WHERE {IN_EXPERIMENT})
        WHERE span.start BETWEEN 0 AND {MAX_TIME} AND span.seconds BETWEEN 0 AND {MAX_TIME})""",
    "step, phase, compile_id, stage, name, start, seconds, thread",
    "start, seconds DESC",
    event_tables=("compile_spans",),
)
"""Every stage of every compilation: step, phase, compile_id, stage, name, start (seconds since the
epoch), seconds, thread; in the order of `start`."""
kept_files = query("kept_files")
"""Stored graphs, generated code and traces: what, compile_id, file, bytes."""
graph_breaks = query(
    "judged_graph_breaks($1)",
    "step, phase, attempt, reason, operator, location, stopped_at, count, cause",
    event_tables=("graph_breaks",),
)
"""Where, why and how often Dynamo split the graph, with phase and attempt. location: the line in
the user's code; stopped_at: the innermost line, in any package; cause: `code`, or on several
devices `buckets` (a split at the end of a DDP bucket) or `ranks` (torch's own code around the
model)."""
compiler_events = query(
    """(
        SELECT run_id, step, phase, 'compiled' AS kind, count(DISTINCT compile_id) AS count,
            string_agg(DISTINCT function, ', ' ORDER BY function) AS detail
        FROM judged_frames($1) WHERE recompile_reason IS NULL GROUP BY run_id, step, phase
        UNION ALL
        SELECT run_id, step, phase, 'recompiled', count(*),
            string_agg(DISTINCT recompile_reason, '; ' ORDER BY recompile_reason)
        FROM judged_frames($1) WHERE recompile_reason IS NOT NULL GROUP BY run_id, step, phase
        UNION ALL
        SELECT run_id, step, phase, 'graph break', sum(coalesce(count, 1)),
            string_agg(DISTINCT location, ', ' ORDER BY location)
        FROM judged_graph_breaks($1) GROUP BY run_id, step, phase)""",
    "step, phase, kind, count, detail",
    "step, kind",
    event_tables=("compile_metrics", "graph_breaks"),
)
"""The compiler's events by step: step, phase, kind, count, detail. kind: compiled (detail: the
functions), recompiled (the failed guards), graph break (the lines); count: the number at that
step."""
compile_caches = query(
    f"""(SELECT run_id, starts_later, entry.key AS layer, entry.value.hit AS hits,
            entry.value.miss AS misses, entry.value.bypass AS bypasses
        FROM (SELECT c.run_id, a.caches IS NOT NULL AS starts_later,
                unnest(map_entries(arg_max(c.layers, c.seq))) AS entry
            FROM (FROM compile_caches WHERE {IN_EXPERIMENT}) c
            LEFT JOIN attempts($1) a
                ON a.run_id = c.run_id AND c.seq > a.seq AND c.seq <= a.last_seq
            GROUP BY c.run_id, starts_later))""",
    "layer, hits, misses, bypasses, starts_later",
    "starts_later, layer",
    event_tables=("compile_caches",),
)
"""One row per layer of the compile cache: layer, hits, misses, bypasses, counted since the start of
the run's process. `starts_later`: in a process that began with the caches of the first one."""
cache_keys = query(
    f"""(SELECT k.*, a.caches IS NOT NULL AS starts_later
        FROM (FROM cache_keys WHERE {IN_EXPERIMENT}) k
        LEFT JOIN attempts($1) a
            ON a.run_id = k.run_id AND k.seq > a.seq AND k.seq <= a.last_seq)""",
    "layer, key, reason, parts, starts_later",
    event_tables=("cache_keys",),
)
"""Every look-up of a graph in a compile cache, if later starts are timed: layer, key (missing if
torch does not cache the graph), reason (why not), parts (a map of changed parts), starts_later."""

# Profiled turns, and the ranks of runs on several devices (empty for runs on one device).
profiles = query(
    "profiles",
    f"{RECORDED} REPLACE (round + 1 AS round, list_median(waited_seconds) AS waited_seconds)",
    "round, seq",
)
"""A row for each turn; all seconds except `cost_seconds` are per step. `busy_seconds`: of the
device, or of the CPU's operators. `seconds`: duration of a profiled step; `issue_seconds`: the part
of it until the host had issued all work. `host_seconds`: a dictionary by part of the host's work.
`waited_seconds`: the median of unprofiled steps after which the host waited for the device.
`failure`: why nothing was recorded."""
profile_kernels = query("profile_kernels", FROM_ONE, "round, seconds DESC, seq")
"""A row for each kernel or operator in each turn, the slowest first: `calls` and `seconds` are per
step. `op`, `phase` and `dtype` are missing if unknown."""
rank_blocks = query("rank_blocks", FROM_ONE, "round, rank, seq")
"""A row for each rank and block: `seconds` by the rank's clock, `cpu_seconds`, `compile_seconds`,
memory, `losses` of its steps (a list), and of its weights after the block `weights_sha256` (of
whole tensors), `shards_sha256` (of its parts of shared ones), `weights_size` (root of the sum of
squares)."""
rank_profiles = query("rank_profiles", FROM_ONE, "round, rank, seq")
"""A row for each rank and profiled turn; all seconds are per step."""
collectives = query("collectives", FROM_ONE, "round, rank, name, seq")
"""A row for each rank, profiled turn and kind of collective: `calls`, `sent_bytes` and `seconds`
per step."""

# Records that show whether a backend computes correctly.
PRIMARY = "coalesce(spec::JSON->>'$.experiment.evaluation.splits[0]', 'validation')"
"""The primary split, whose numbers represent the run: the first one that is evaluated."""
evaluations = query(
    f"""(SELECT e.* FROM judged_evaluations($1) e JOIN runs USING (run_id)
        WHERE NOT compiled AND split = {PRIMARY})""",
    "epoch + 1 AS epoch, step, loss, accuracy, num_samples, seconds, inputs_sha256",
)
"""Evaluations of each run after `step` steps on the primary split, without a compiler. One row per
step: epoch, step, loss, accuracy, num_samples, seconds, inputs_sha256."""
evaluation_metrics = query(
    """(FROM (SELECT * EXCLUDE (metrics, loss),
            unnest(list_prepend({key: 'loss', value: loss}, map_entries(metrics)),
                recursive := true)
        FROM judged_evaluations($1)) WHERE value IS NOT NULL)""",
    "epoch + 1 AS epoch, step, split, compiled, key AS name, value, num_samples",
    "seq, name",
)
"""All numbers of all evaluations: epoch, step, split, compiled, name, value, num_samples.
`compiled` is true for the compiled model, false for the same weights without a compiler. The loss
has the name 'loss'. Undefined values have no row, so NaN means that the value was not a number."""
answers = query(
    f"""(SELECT e.* EXCLUDE (answers), unnest(answers) FROM (
            SELECT run_id, seq, step, split, answers FROM judged_evaluations($1)
            UNION ALL BY NAME
            SELECT run_id, seq, step, split, answers FROM predictions WHERE {IN_EXPERIMENT}) e
        WHERE answers IS NOT NULL)""",
    "step, split, error, compared, differing, wrong, wrong_classes, margin, difference, "
    "tolerance, ratio, samples",
)
"""Differences between answers of compiled models and of the same weights without a compiler, for
every evaluation and every prediction file: step, split, and the fields of `answers`
(docs/events.md)."""
predictions = query(
    f"(SELECT p.*, folder FROM predictions p JOIN progress USING (run_id) WHERE {IN_EXPERIMENT})",
    "split, folder, file, num_samples",
    event_tables=("predictions",),
)
"""split, folder (of the run), file (relative to it, an unchecked path from the journal),
num_samples; `storage.comparison.predictions` reads the files."""
accuracy_statuses = query("accuracy_statuses", json=("notes",))
"""part, status, message, tolerance, iterations, notes (a list) of each checked part."""
accuracy_tensors = query(
    "accuracy_tensors",
    f"{RECORDED}, coalesce(rmse / (multiplier * baseline_rmse + scale * tolerance / 10), "
    "max_difference / (scale * tolerance)) AS error_ratio",
)
"""All compared tensors, in the order of the check. `error_ratio` is the error over the limit: the
error against the reference if there is one, else the largest difference to the baseline over the
absolute tolerance."""
random_numbers = query(
    "random_numbers", "same, num_draws, loss_by_draw, inference_draws, error", only_last=True
)
"""same (whether the backend draws the same numbers as without a compiler), num_draws, loss_by_draw
(a list, draws without a compiler first), inference_draws, error of each examined run."""
redraws = query("redraws")
"""tensor, change, distances (a list): changes of each parameter of a run by steps with other random
numbers."""
rehearsals = query("rehearsals")
"""form (eager, perturbed, compiled), loss_by_step (a list), reason (why there are no losses)."""
dropouts = query("dropouts")
"""The draws of each dropout, compiled or not, in the order of the calls of a forward pass."""

# The search for the cause of another run's fault.
investigation_trials = query("investigation_trials", order="number")
"""number (from 1), stage, what (backend or graph), outcome, detail, step, trial_seconds."""
investigation_findings = query("investigation_findings", json=("labels",), only_last=True)
"""What is known so far (docs/events.md); `labels` is a list."""
