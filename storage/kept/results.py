"""Results of experiments that are over, kept in the database until anything of them changes.

A result is believed if it was computed from the same revision of the experiment by the same code,
and by this user's own dashboard (`storage.kept.seal`) or, in a team's store, by anybody who may
change its rows as well. Else it is computed anew.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from breakeven.runner.folders.states import RunState
from breakeven.storage.errors import StoreUnusable
from breakeven.storage.index.results import ResultKey
from breakeven.storage.index.store import Store
from breakeven.storage.kept.code_version import code_version
from breakeven.storage.kept.seal import is_sealed, seal
from breakeven.storage.kept.texts import Kinds, NotWritable, packed, read, unpacked, written
from breakeven.storage.queries.kept import standing

T = TypeVar("T")


def lasting(
    store: Store, experiment_id: str, name: str, kinds: Kinds, compute: Callable[[], T]
) -> T:
    """What `compute` says, or said of the experiment as it is.

    `kinds`: every class that the result is made of beside numbers, texts and collections.
    """
    # Before anything is computed: what arrives meanwhile then counts as new the next time.
    key = _key(store, experiment_id, name)
    if key is None:
        return compute()
    found = _found(store, key, kinds)
    if found:
        result: T = found[0]
        return result
    result = compute()
    _keep(store, key, result, kinds)
    return result


def known(store: Store, experiment_id: str, name: str, kinds: Kinds, also: str) -> Any | None:
    """What was kept of the experiment as it is, or None; `also`: the version of other code that the
    result depends on."""
    key = _key(store, experiment_id, name, also)
    found = [] if key is None else _found(store, key, kinds)
    return found[0] if found else None


def keep(
    store: Store, experiment_id: str, name: str, kinds: Kinds, compute: Callable[[], Any], also: str
) -> None:
    """Has `known` say what `compute` says, where anything is kept and it was not."""
    key = _key(store, experiment_id, name, also)
    if key is not None and not _found(store, key, kinds):
        _keep(store, key, compute(), kinds)


def all_known(store: Store, name: str, also: str) -> set[tuple[str, int, int]]:
    """Of which experiments, in which of their revisions (newest write, number of runs), a result is
    kept; whether it is believed, `known` says."""
    if store.results is None or (also and store.results.is_shared):
        return set()
    return store.results.all_of(name, _version(also))


def _version(also: str) -> str:
    return f"{code_version()} {also}".rstrip()


def _key(store: Store, experiment_id: str, name: str, also: str = "") -> ResultKey | None:
    """None of an experiment of which nothing is kept."""
    # What goes to browsers as it is, charts, is taken from nobody else.
    is_kept = store.results is not None and not (also and store.results.is_shared)
    now = standing(store, experiment_id)
    # Of an experiment that goes on a result would change in a moment.
    if not is_kept or not all(RunState(state).is_final for state in now.states):
        return None
    newest, num_runs = now.revision
    return ResultKey(experiment_id, name, str(newest), str(num_runs), _version(also))


def _found(store: Store, key: ResultKey, kinds: Kinds) -> list[Any]:
    """The result alone, or nothing."""
    assert store.results is not None
    found = store.results.find(key)
    if found is None:
        return []
    content, mark = found
    # Even what is written as it should be may be more than this Python reads.
    with suppress(ValueError, TypeError, RecursionError):
        if store.results.is_shared or is_sealed(mark, *key, content):
            return [read(unpacked(content), kinds)]
    return []


def _keep(store: Store, key: ResultKey, result: Any, kinds: Kinds) -> None:
    """Only what comes back as it was; where it cannot be kept, it is computed again."""
    assert store.results is not None
    with suppress(NotWritable, StoreUnusable, RecursionError):
        whole = written(result, kinds)
        if repr(read(whole, kinds)) != repr(result):
            return
        content = packed(whole)
        store.results.keep(key, content, seal(*key, content))
