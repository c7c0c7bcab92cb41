"""Reads the store: one function per question, each returning a data frame. No statistics here.

Times of day are UTC timestamps, durations seconds; epochs and rounds count from 1 and steps from 0,
as pages show them, whatever a journal counts from. What was not measured is missing (NaN, NaT or
None). A loss in a result is never missing: there NaN means that the loss itself was not a number.
"""

from breakeven.storage.queries.accuracy import accuracy_statuses, accuracy_tensors
from breakeven.storage.queries.compiler import (
    compile_caches,
    compile_metrics,
    compile_spans,
    compiler_events,
    compiles,
    graph_breaks,
    kept_files,
)
from breakeven.storage.queries.costs import costs
from breakeven.storage.queries.device import device_samples, latest_device_samples
from breakeven.storage.queries.experiments import (
    list_experiments,
    list_runs,
    run_states,
    unreadable,
)
from breakeven.storage.queries.kept import revision
from breakeven.storage.queries.latest import latest_runs
from breakeven.storage.queries.lifecycle import checkpoints, resumptions, stops
from breakeven.storage.queries.profiles import profile_kernels, profiles
from breakeven.storage.queries.randomness import dropouts, random_numbers, redraws, rehearsals
from breakeven.storage.queries.ranks import collectives, rank_blocks, rank_profiles
from breakeven.storage.queries.runs import (
    RunError,
    RunRecord,
    environments,
    fields_by_run,
    fields_of,
    inputs,
    run_record,
    sources,
    workloads,
)
from breakeven.storage.queries.scores import answers, evaluation_metrics, evaluations, predictions
from breakeven.storage.queries.series import (
    MAX_POINTS,
    blocks,
    cumulative_times,
    gradient_statistics,
    loss_terms,
    losses,
    own_values,
    step_settings,
    step_times,
)
from breakeven.storage.queries.suites import (
    experiment_spec,
    list_suite_runs,
    suite_experiments,
)

__all__ = [
    "MAX_POINTS",
    "RunError",
    "RunRecord",
    "accuracy_statuses",
    "accuracy_tensors",
    "answers",
    "blocks",
    "checkpoints",
    "collectives",
    "compile_caches",
    "compile_metrics",
    "compile_spans",
    "compiler_events",
    "compiles",
    "costs",
    "cumulative_times",
    "device_samples",
    "dropouts",
    "environments",
    "evaluation_metrics",
    "evaluations",
    "experiment_spec",
    "fields_by_run",
    "fields_of",
    "gradient_statistics",
    "graph_breaks",
    "inputs",
    "kept_files",
    "latest_device_samples",
    "latest_runs",
    "list_experiments",
    "list_runs",
    "list_suite_runs",
    "loss_terms",
    "losses",
    "own_values",
    "predictions",
    "profile_kernels",
    "profiles",
    "random_numbers",
    "rank_blocks",
    "rank_profiles",
    "redraws",
    "rehearsals",
    "resumptions",
    "revision",
    "run_record",
    "run_states",
    "sources",
    "step_settings",
    "step_times",
    "stops",
    "suite_experiments",
    "unreadable",
    "workloads",
]  # fmt: skip
