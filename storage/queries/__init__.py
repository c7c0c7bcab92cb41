"""Reads the store: each function is one query and returns a data frame, without statistics.

Times of day are UTC timestamps, durations are seconds. Epochs and rounds count from 1 and steps
from 0, as on pages; journals may differ. Unmeasured values are missing (NaN, NaT or None). A loss
in a result is never missing: NaN means that the loss was not a number.
"""

from breakeven.storage.queries.experiments import (
    experiment_spec,
    faults_not_repeated,
    id_named,
    is_suite_run,
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
    cumulative_times,
    device_samples,
    latest_device_samples,
    losses,
)
from breakeven.storage.queries.thinning import MAX_POINTS, thinned
from breakeven.storage.queries.time_use import activities, costs
from breakeven.storage.result_caches import revision
