"""Which suite runs there are, and which experiments belong to one."""

import pandas as pd

from breakeven.runner.folders.states import FINAL_EXPERIMENTS
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.queries.experiments import COLUMNS, listed
from breakeven.storage.queries.kept import kept


def list_suite_runs(store: Store) -> pd.DataFrame:
    """All suite runs, the newest first, with how many of their experiments there are and are over.

    `device_name` and `torch_version` are those of any of its experiments.
    """
    frame = suite_experiments(store)
    frame["is_over"] = frame["state"].isin(FINAL_EXPERIMENTS)
    runs = frame.groupby("suite_run", as_index=False).agg(
        submitted=("submitted", "min"),
        num_experiments=("experiment_id", "size"),
        num_over=("is_over", "sum"),
        origin=("origin", "max"),
        device_name=("device_name", "first"),
        torch_version=("torch_version", "first"),
    )
    return runs.sort_values(["submitted", "suite_run"], ascending=False, ignore_index=True)


def suite_experiments(store: Store, suite_run: str | None = None) -> pd.DataFrame:
    """The experiments of a suite run, or of all of them, the oldest first: as `list_experiments`
    has them, and `suite_run`, and `revision`, which with `num_runs` changes with any of its runs.
    """
    found = listed(store).dropna(subset="suite_run")
    if suite_run is not None:
        found = found[found["suite_run"] == suite_run]
    return found[[*COLUMNS, "suite_run", "revision"]].iloc[::-1]


@kept
def experiment_spec(store: Store, experiment_id: str) -> ExperimentSpec:
    """What an experiment was to do; raises `NotInStore`."""
    found = store.query("SELECT spec FROM runs WHERE experiment_id = ? LIMIT 1", [experiment_id])
    if found.empty:
        raise NotInStore(f"no experiment {experiment_id!r} in {store.data_dir.runs}")
    return RunSpec.from_json(found["spec"].iloc[0]).experiment
