"""Experiments whose folders say that they come from another time."""

import time

import pandas as pd
import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import backend_rows, catalog, compute
from breakeven.storage.library.trends import trends
from tests.helpers.journals import record_experiment

pytestmark = pytest.mark.heavy

OLD, NEW = "20261120-093010-123456-7f3a", "20261121-093010-123456-7f3a"
LATER = ("99991231-235959-999999-ffff", "21000101-000000-000000-ffff")
BEFORE = ("00010101-000000-000000-ffff", "19691231-235959-000000-ffff")
NO_TIME = "zzz"


def test_neither_the_future_nor_antiquity_is_the_newest_of_lists_or_trends(
    data_dir: DataDir,
) -> None:
    strange = (*LATER, *BEFORE)
    for experiment_id in (OLD, NEW, *strange):
        record_experiment(data_dir.runs, experiment_id=experiment_id)
        for run in data_dir.run_dirs():
            if run.run_id.startswith(strange):  # nor does the claim tell a time that was
                run.claim_file.unlink(missing_ok=True)
    record_experiment(data_dir.runs, experiment_id=NO_TIME)
    with Store.in_memory(data_dir) as store:
        listed = queries.list_experiments(store).set_index("experiment_id")
        compute(store, 60)
        known = catalog(store)
        series = trends(backend_rows(store, known), "step_seconds")
    # The one without a time in its name is known by when it was claimed, a moment ago.
    assert list(listed.index[:3]) == [NO_TIME, NEW, OLD]
    assert list(known["experiment_id"][:3]) == [NO_TIME, NEW, OLD]
    assert listed.loc[NEW, "submitted"] == pd.Timestamp("2026-11-21 09:30:10.123456", tz="UTC")
    assert listed.loc[[*strange], "submitted"].isna().all()
    assert abs(listed.loc[NO_TIME, "submitted"].timestamp() - time.time()) < 600
    assert series
    for one in series:
        assert [point.experiment_id for point in one.points][-3:] == [OLD, NEW, NO_TIME]
