"""What is compared before anybody asks, so that it is kept by then.

In a team whoever feeds the store does so for all others, and nobody for what others feed.
"""

from collections.abc import Collection
from typing import TypeAlias

from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import compute
from breakeven.storage.library.facts import Standing, standings
from breakeven.storage.library.kept import kept_summary

State: TypeAlias = tuple[str, int, int]
"""An experiment in one of its revisions: newest write, number of runs."""


def state_of(one: Standing) -> State:
    return one.experiment_id, one.revision.newest, one.revision.num_runs


def next_to_compare(
    store: Store, tried: Collection[State], drawn: Collection[State] | None = None
) -> Standing | None:
    """The newest experiment of the data folder here that is over, of which the summary is not kept
    and which was not `tried`; with `drawn` also those that are not in it."""
    for one in standings(store):
        if one.state.is_active or one.data_folder != store.own_data_folder:
            continue
        is_drawn = drawn is None or state_of(one) in drawn
        is_known = is_drawn and kept_summary(store, one.experiment_id, one.revision)
        if state_of(one) not in tried and not is_known:
            return one
    return None


def compare_next(store: Store, tried: set[State]) -> bool:
    """Compares one experiment, for everybody; False if all are."""
    one = next_to_compare(store, tried)
    if one is not None:
        tried.add(state_of(one))
        compute(store, 0.0, only=[one.experiment_id])
    return one is not None
