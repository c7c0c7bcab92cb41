"""Reads the store: one function per question, each returning a data frame. No statistics here.

Times of day are UTC timestamps, durations seconds; epochs and rounds count from 1 and steps from 0,
as pages show them, whatever a journal counts from. What was not measured is missing (NaN, NaT or
None). A loss in a result is never missing: there NaN means that the loss itself was not a number.
"""

from breakeven.storage.memo import revision
from breakeven.storage.queries.experiments import (
    experiment_spec,
    latest_runs,
    list_experiments,
    list_runs,
    list_suite_runs,
    run_states,
    suite_experiments,
    unreadable,
)
from breakeven.storage.queries.recorded import *
from breakeven.storage.queries.runs import (
    RunError,
    RunRecord,
    fields_by_run,
    fields_of,
    resumptions,
    run_record,
)
from breakeven.storage.queries.series import (
    MAX_POINTS,
    cumulative_times,
    device_samples,
    latest_device_samples,
    losses,
)
from breakeven.storage.queries.timeline import activities, costs
