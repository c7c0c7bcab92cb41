"""What runs recorded: each name here asks a store for rows of an experiment, given its id."""

from breakeven.runner.folders.states import MAX_TIME
from breakeven.storage.queries.rows import MINE, query


def _latest(table: str) -> str:
    """A resumed run records its environment again; the last record counts."""
    return f"(FROM {table} WHERE {MINE} QUALIFY seq = max(seq) OVER (PARTITION BY run_id))"


environments = query(
    _latest("environments"),
    "host, platform, python, versions, device_type, device_name, cpu_model, num_cpus, "
    "cpu_threads, gpu_memory_bytes, cuda, driver, variables, usable_cpus, cpu_threads_reason, "
    "interop_threads, max_sm_clock_mhz, power_limit_watts, notes, cpus, devices",
    json=("versions", "variables", "notes", "devices"),
)
"""What each run says of its machine and software; `notes` is a list, `versions` and `variables` are
dictionaries."""
workloads = query(
    _latest("workloads"),
    "task, num_parameters, num_labels, labels, num_train_samples, num_eval_samples, "
    "num_test_samples, num_steps, steps_per_epoch, block_steps, samples_per_step, "
    "tokens_per_step, padding_share, flops_per_step, majority_share, weights_sha256, "
    "data_sha256, precision, code_sha256, uncounted, notes",
    json=("labels", "uncounted", "notes"),
)
"""What each run says of its model and data; `labels`, `uncounted` and `notes` are lists."""
inputs = query("inputs", "step, sha256, floats, random", "step")
"""Of scripts: step, sha256 of what the compiled function was called with (null without a tensor)
but for floats, tensors of numbers with a fraction (sha256, rough: numbers that hardly change when
the tensor's do), random (a map: generator to a hash of where it stood)."""
sources = query(
    f"""(SELECT run_id, source, file, sha256, min(seq) AS seq FROM sources WHERE {MINE}
        GROUP BY run_id, source, file, sha256)""",
    "source, file, sha256",
    of=("sources",),
)
"""The Python files of a person's own that each run executed: source, file (the copy), sha256. A
file that was changed before the run was resumed is there in both versions."""
checkpoints = query(
    f"""(SELECT c.* REPLACE (EXISTS (
            FROM checkpoints later
            WHERE later.{MINE} AND later.run_id = c.run_id AND later.seq > c.seq
                AND list_contains(later.removed, c.file)) AS removed)
        FROM checkpoints c WHERE c.{MINE})""",
    "step, file, bytes, seconds, value, removed",
    of=("checkpoints",),
)
"""step (steps done), file, bytes, seconds, value, removed. `value` is that of the metric that ranks
them, missing where the model was not evaluated. `removed` says whether a later checkpoint took this
one's place."""
stops = query("stops", "step, reason, ending")
"""step (steps done), reason of training that ended before its last step by its own rules; of
measuring that ended by itself also `ending`, as JSON, missing in older journals."""

# Steps and blocks.
wrong_losses = query(
    f"""(SELECT run_id, min(step) AS step FROM steps WHERE {MINE} AND NOT isfinite(loss)
        GROUP BY run_id)""",
    "step",
    "step",
)
"""step, the first one whose loss is not finite, of each run that has one."""
step_times = query(
    "judged_steps($1)",
    "step, epoch + 1 AS epoch, round + 1 AS round, loss, seconds, compiled, attempt, steady",
    "step",
    many=True,
)
"""step, epoch, round, loss, seconds, compiled, attempt, steady of every step."""
step_settings = query("steps", "step, learning_rate, gradient_norm", "step", many=True)
"""step, learning_rate, gradient_norm of every step. Either is missing where it was not recorded; a
gradient norm may be infinite."""
blocks = query(
    "judged_blocks($1)",
    "round + 1 AS round, position, first_step, num_steps, seconds, compiled, attempt, steady, "
    "peak_memory_bytes, reserved_memory_bytes, samples, tokens",
    "first_step",
    many=True,
)
"""Every turn's block: round, first_step, num_steps, seconds, compiled, steady, memory; of a script
also samples and tokens, missing where it does not tell them. `attempt` is 1 for a run's first
process and one more after each resumption."""
loss_terms = query(
    f"""(SELECT run_id, step, unnest(map_entries(losses), recursive := true)
        FROM steps WHERE {MINE})""",
    "step, key AS name, value",
    "step, name",
)
"""step, name, value of every term of the loss, before weighing; empty where there is one."""
gradient_statistics = query(
    f"""(SELECT run_id, step, generate_subscripts(tensors, 1) AS number,
            unnest(tensors, recursive := true)
        FROM gradient_statistics WHERE {MINE})""",
    "step, name, norm, mean, deviation, largest, zeros",
    "step, number",
    of=("gradient_statistics",),
)
"""One row per step and parameter: step, name, norm, mean, deviation, largest, zeros. `zeros` is the
share of elements that are exactly 0."""
own_values = query(
    f"(FROM own_values WHERE {MINE} QUALIFY seq = max(seq) OVER (PARTITION BY run_id, step, name))",
    "step, name, value",
    "name, step",
    of=("own_values",),
)
"""step, name, value of the numbers that callbacks recorded; the last one of a step counts."""

# What the compiler did.
compiles = query("compile_ends", "step, phase, trigger, compile_id, seconds")
"""Every compilation that ended; `phase` is training or evaluating."""
compile_metrics = query(
    "judged_frames($1)",
    "step, phase, attempt, compile_id, function, file, line, dynamo_seconds, aot_seconds, "
    "inductor_seconds, code_seconds, kernel_seconds, total_seconds, graph_ops, guards, "
    "recompile_reason, failure",
    of=("compile_metrics",),
)
"""What Dynamo reports of every frame that it compiled, in which phase and attempt."""
compile_spans = query(
    f"""(SELECT run_id, step, coalesce(phase, 'training') AS phase, compile_id,
            span.stage AS stage, left(span.name, 200) AS name, span.start AS start,
            span.seconds AS seconds, span.thread AS thread
        FROM (SELECT *, unnest(spans) AS span FROM compile_spans WHERE {MINE})
        WHERE span.start BETWEEN 0 AND {MAX_TIME} AND span.seconds BETWEEN 0 AND {MAX_TIME})""",
    "step, phase, compile_id, stage, name, start, seconds, thread",
    "start, seconds DESC",
    of=("compile_spans",),
)
"""Every stage of every compilation: step, phase, compile_id, stage, name, start (seconds since the
epoch), seconds, thread; in the order in which they began."""
kept_files = query("kept_files", "what, compile_id, file, bytes")
"""Stored graphs, generated code and traces: what, compile_id, file, bytes."""
graph_breaks = query(
    "judged_graph_breaks($1)",
    "step, phase, attempt, reason, location, stopped_at, count, cause",
    of=("graph_breaks",),
)
"""Where and why Dynamo split the graph, and how often, in which phase and attempt. location: the
line of the user's own code; stopped_at: the innermost line, in any package; cause: `code`, or on
several devices `buckets` (a split where a bucket of DDP ends) or `ranks` (torch's own code around
the model)."""
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
    of=("compile_metrics", "graph_breaks"),
)
"""What the compiler did at which step: step, phase, kind, count, detail. kind: compiled (detail:
the functions), recompiled (the guards that failed), graph break (the lines); count: how many at
that step."""
compile_caches = query(
    f"""(SELECT run_id, entry.key AS layer, entry.value.hit AS hits,
            entry.value.miss AS misses, entry.value.bypass AS bypasses
        FROM (SELECT run_id, unnest(map_entries(arg_max(layers, seq))) AS entry
            FROM compile_caches WHERE {MINE} GROUP BY run_id))""",
    "layer, hits, misses, bypasses",
    "layer",
    of=("compile_caches",),
)
"""One row per layer of the compile cache: layer, and how often it was hit, missed, bypassed. The
counts are those of the whole run, as far as it has come."""

# Profiled turns, and the ranks of runs on several devices: nothing for runs on one.
profiles = query(
    "profiles",
    "round + 1 AS round, steps, cost_seconds, seconds, issue_seconds, busy_seconds, "
    "underfilled_seconds, launches, host_seconds, "
    "list_median(waited_seconds) AS waited_seconds, compiled, trace, trace_bytes, failure",
    "round, seq",
)
"""A row for each turn; all seconds but `cost_seconds` are of one step. `busy_seconds`: the
device's, or the CPU's operators'. `seconds`: the step's while it was profiled, `issue_seconds` of
them until the host had issued it. `host_seconds`: a dictionary by part of the host's work.
`waited_seconds`: the median of steps after each of which the host waited for the device, not
profiled. `failure`: why nothing was recorded."""
profile_kernels = query(
    "profile_kernels",
    "round + 1 AS round, name, op, phase, dtype, calls, seconds",
    "round, seconds DESC, seq",
)
"""A row for each kernel or operator in each turn, those that took most first: `calls` and `seconds`
are of one step. `op`, `phase` and `dtype` are missing where they are not known."""
rank_blocks = query(
    "rank_blocks",
    "round + 1 AS round, first_step, rank, seconds, cpu_seconds, peak_memory_bytes, "
    "reserved_memory_bytes",
    "round, rank, seq",
)
"""A row for each rank and block: `seconds` by its own clock, `cpu_seconds`, memory."""
rank_profiles = query(
    "rank_profiles",
    "round + 1 AS round, rank, compute_seconds, communication_seconds, exposed_seconds",
    "round, rank, seq",
)
"""A row for each rank and profiled turn; all seconds are of one step."""
collectives = query(
    "collectives",
    "round + 1 AS round, rank, name, calls, sent_bytes, seconds",
    "round, rank, name, seq",
)
"""A row for each rank, profiled turn and kind of collective: `calls`, `sent_bytes` and `seconds` of
one step."""

# What tells whether a backend computes rightly.
PRIMARY = "coalesce(spec::JSON->>'$.experiment.evaluation.splits[0]', 'validation')"
"""The split whose numbers speak for the run: the first one that is evaluated."""
evaluations = query(
    f"""(SELECT e.* FROM judged_evaluations($1) e JOIN runs USING (run_id)
        WHERE NOT compiled AND split = {PRIMARY})""",
    "epoch + 1 AS epoch, step, loss, accuracy, num_samples, seconds",
)
"""What each run scored after `step` steps on the primary split, the first of `evaluation.splits`,
without a compiler. One row per step: epoch, step, loss, accuracy, num_samples, seconds."""
evaluation_metrics = query(
    """(FROM (SELECT * EXCLUDE (metrics, loss),
            unnest(list_prepend({key: 'loss', value: loss}, map_entries(metrics)),
                recursive := true)
        FROM judged_evaluations($1)) WHERE value IS NOT NULL)""",
    "epoch + 1 AS epoch, step, split, compiled, key AS name, value, num_samples",
    "seq, name",
)
"""Every number of every evaluation: epoch, step, split, compiled, name, value, num_samples.
`compiled` tells the compiled model from the same weights without a compiler. A loss is named
'loss'. What is undefined has no row, so a value of NaN was not a number."""
answers = query(
    f"""(SELECT e.* EXCLUDE (answers), unnest(answers) FROM (
            SELECT run_id, seq, step, split, answers FROM judged_evaluations($1)
            UNION ALL BY NAME
            SELECT run_id, seq, step, split, answers FROM predictions WHERE {MINE}) e
        WHERE answers IS NOT NULL)""",
    "step, split, error, compared, differing, wrong, wrong_classes, margin, difference, "
    "tolerance, ratio, samples",
)
"""How far answers of compiled models lay from those of the same weights without a compiler, at
every evaluation and of every file of predictions: step, split, and the fields of `answers`
(docs/events.md)."""
predictions = query(
    f"(SELECT p.*, folder FROM predictions p JOIN progress USING (run_id) WHERE {MINE})",
    "split, folder, file, num_samples",
    of=("predictions",),
)
"""split, folder (of the run), file (relative to it, on the journal's word), num_samples;
`storage.comparison.predictions` reads the files."""
accuracy_statuses = query(
    "accuracy_statuses", "part, status, message, tolerance, iterations, notes", json=("notes",)
)
"""part, status, message, tolerance, iterations, notes (a list) of each part checked."""
accuracy_tensors = query(
    "accuracy_tensors",
    "part, quantity, tensor, num_elements, max_difference, rmse, baseline_rmse, multiplier, "
    "tolerance, scale, passed, coalesce(rmse / (multiplier * baseline_rmse + scale * tolerance "
    "/ 10), max_difference / (scale * tolerance)) AS error_ratio",
)
"""Every tensor that was compared, in the order of the check. `error_ratio` is its error over what
the rule allows: against the reference where there is one, else its largest difference to the
baseline's over the absolute tolerance."""
random_numbers = query(
    _latest("random_numbers"),
    "same, num_draws, loss_by_draw, inference_draws, error",
    of=("random_numbers",),
)
"""same (whether the backend draws the same numbers as without a compiler), num_draws, loss_by_draw
(a list, draws without a compiler first), inference_draws, error of each examined run."""
redraws = query("redraws", "tensor, change, distances")
"""tensor, change, distances (a list): how steps with other random numbers changed each of a run's
parameters."""
rehearsals = query("rehearsals", "form, loss_by_step, reason")
"""form (eager, perturbed, compiled), loss_by_step (a list), reason why there are none."""
dropouts = query("dropouts", "compiled, number, operation, p, tried, zeros, sum, squares, backward")
"""What each dropout drew, compiled or not, in the order of a forward's calls."""
