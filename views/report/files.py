"""Reports of experiments and of whole suite runs as HTML pages."""

import threading
from collections.abc import Callable, Hashable, Sequence

from breakeven.runner.errors import RunnerError
from breakeven.storage import queries
from breakeven.storage.errors import NotExportable
from breakeven.storage.index.store import Store
from breakeven.storage.memo import memo
from breakeven.views.report.document import report

MAX_EXPERIMENTS = 100
"""Most experiments of a report from a page; each takes a second or more. The report of a suite run
has all of its experiments, as has a report from the command line."""
MANY = 4
"""Reports of more experiments than this are made one at a time, and do not delay smaller ones."""
_turns = {is_long: threading.Lock() for is_long in (False, True)}
"""Locks for one short and one long report at a time: more at once would all be late."""


class NotWanted(RunnerError):
    """The reader who requested a report has left."""


def report_of(
    store: Store,
    requested: Sequence[str],
    most: int | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> str:
    """The page with the given experiments and all experiments of the given suite runs, cached until
    the store ingests new rows of them.

    `most`: the largest number of experiments, unless a single suite run has more. `is_wanted` is
    called before each experiment. Raises `NotInStore`, `NotExportable`, `NotWanted`.
    """
    known = set(queries.list_suite_runs(store)["suite_run"])
    suite_runs = [one for one in dict.fromkeys(requested) if one in known]
    ids: dict[str, None] = {}
    for one in requested:
        mine = [one]
        if one in known:
            mine = list(queries.suite_experiments(store, one)["experiment_id"])
        ids |= dict.fromkeys(mine)
    is_one_suite_run = len(requested) == 1 and bool(suite_runs)
    if most is not None and len(ids) > most and not is_one_suite_run:
        raise NotExportable(f"a page has at most {most:,} experiments; this asks for {len(ids):,}")
    with _turns[len(ids) > MANY]:
        return _made(store, list(ids), suite_runs, is_wanted)


def _made(
    store: Store, ids: Sequence[str], suite_runs: Sequence[str], is_wanted: Callable[[], bool]
) -> str:
    def go_on() -> None:
        if not is_wanted():
            raise NotWanted("the reader who requested the report has left")

    @memo(_version)
    def page(store: Store, ids: tuple[str, ...], suite_runs: tuple[str, ...]) -> str:
        return report(store, ids, suite_runs, go_on)

    go_on()  # The experiments above took a while.
    return page(store, tuple(ids), tuple(suite_runs))


def _version(store: Store, ids: Sequence[str], suite_runs: Sequence[str]) -> Hashable:
    """Changes with any change of the experiments, their labels included."""
    return tuple(_state(store, one) for one in (*suite_runs, *ids))


def _state(store: Store, experiment_id: str) -> Hashable:
    labels = store.query(
        "SELECT run_id, content FROM labels WHERE starts_with(run_id, ?)", [f"{experiment_id}."]
    )
    return experiment_id, queries.revision(store, experiment_id), *labels.itertuples(index=False)
