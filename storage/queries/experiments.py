"""Which experiments and runs there are, and how each stands right now."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from weakref import WeakKeyDictionary

import pandas as pd

from breakeven.runner.errors import cause_of
from breakeven.runner.folders.states import ExperimentState, RunState
from breakeven.runner.specs.workload import known_as
from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import MINE, in_parts, submitted, timestamp


def list_experiments(store: Store) -> pd.DataFrame:
    """All experiments, newest first.

    `state` is an `ExperimentState`, which sums up the runs; `name` and `archived` are as people
    labelled it.
    """
    return listed(store)[list(COLUMNS)]


def listed(store: Store) -> pd.DataFrame:
    """The same with `suite_run` and `revision`, which with `num_runs` changes with any run."""
    memory = _memories.setdefault(store, _Memory())
    with memory.lock:
        # Before anything is asked: what arrives meanwhile then counts as new the next time.
        generation = store.generation
        if memory.generation != generation:
            memory.frame = _listed(store, memory.facts)
            memory.generation = generation
        return memory.frame.copy(deep=False)


@dataclass
class _Memory:
    """What was found last, and of every experiment what does not change by its going on."""

    lock: Lock = field(default_factory=Lock)
    generation: int = -1
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    facts: dict[str, tuple[int, int, tuple[object, ...]]] = field(default_factory=dict)
    """By experiment: its newest write and number of runs, and the values of `FACTS`."""


_memories: WeakKeyDictionary[Store, _Memory] = WeakKeyDictionary()
FACTS = {
    "name": "spec->>'name'",
    "device": "coalesce(placed, spec->>'$.devices[0]')",
    "device_name": "device_name",
    "schedule": "spec->>'schedule'",
    "fallback_of": "spec->>'fallback_of'",
    "replay_of": "spec->>'replay_of'",
    "model": "spec->>'$.model.source'",
    "data": "spec->>'$.data.source'",
    "torch_version": "torch_version",
    "suite_run": "spec->>'suite_run'",
}
COLUMNS = ("experiment_id", "name", "archived", "origin", "submitted", "device", "device_name",
           "schedule", "fallback_of", "replay_of", "state", "num_runs", "num_ended", "model",
           "data", "torch_version")  # fmt: skip


def _listed(store: Store, facts: dict[str, tuple[int, int, tuple[object, ...]]]) -> pd.DataFrame:
    frame = store.query("""
        SELECT experiment_id, max(origin) AS origin, min(claimed) AS submitted,
            array_agg(state) AS state, count(*) AS num_runs, max(progress.revision) AS revision,
            any_value(content->>'name') FILTER (position = 0) AS called,
            any_value((content->>'archived')::BOOLEAN) FILTER (position = 0) AS archived
        FROM runs JOIN progress USING (run_id) LEFT JOIN labels USING (run_id)
        GROUP BY experiment_id""")
    versions = zip(frame["revision"], frame["num_runs"], strict=True)
    known = dict(zip(frame["experiment_id"], versions, strict=True))
    for gone in facts.keys() - known.keys():
        del facts[gone]
    unknown = [one for one, version in known.items() if facts.get(one, ())[:2] != version]
    for some in in_parts(unknown):
        _add_facts(store, facts, {one: known[one] for one in some})
    found = zip(*(facts[one][2] for one in known), strict=True) if known else [()] * len(FACTS)
    for name, values in zip(FACTS, found, strict=True):
        frame[name] = pd.Series(values, index=frame.index, dtype="str")
    usual = list(map(known_as, frame["name"], frame["model"], frame["data"]))
    frame["name"] = frame.pop("called").astype("str").fillna(pd.Series(usual, dtype="str"))
    frame["archived"] = frame["archived"].astype(object).fillna(False).astype(bool)
    frame["num_ended"] = [sum(map(_is_final, group)) for group in frame["state"]]
    frame["state"] = [_summed_up(frozenset(group)) for group in frame["state"]]
    frame["submitted"] = submitted(frame["experiment_id"], frame["submitted"])
    return frame.sort_values(["submitted", "experiment_id"], ascending=False, ignore_index=True)


def _add_facts(
    store: Store,
    facts: dict[str, tuple[int, int, tuple[object, ...]]],
    versions: Mapping[str, tuple[int, int]],
) -> None:
    """Looks up what is not known of these experiments, or may have changed."""
    rows = store.rows(
        f"""
        WITH mine AS (FROM runs WHERE experiment_id IN (SELECT unnest(?))),
        known AS (
            SELECT run_id, arg_max(device_name, seq) AS device_name,
                arg_max(versions->>'torch', seq) AS torch_version,
                arg_max(devices->>'$[0]', seq) AS placed
            FROM environments WHERE experiment IN (SELECT experiment FROM mine) GROUP BY run_id),
        summed AS (
            SELECT experiment_id, min(spec)::JSON->'experiment' AS spec,
                max(device_name) AS device_name, max(torch_version) AS torch_version,
                max(placed) AS placed
            FROM mine LEFT JOIN known USING (run_id) GROUP BY experiment_id)
        SELECT experiment_id, {", ".join(FACTS.values())} FROM summed""",
        [list(versions)],
    )
    for experiment_id, *values in rows:
        facts[experiment_id] = (*versions[experiment_id], tuple(values))


@lru_cache
def _summed_up(states: frozenset[str]) -> str:
    return ExperimentState.of([RunState(state) for state in states]).value


@lru_cache
def _is_final(state: str) -> bool:
    return RunState(state).is_final


PLANNED_AND_SAID = f"""
        planned AS (
            SELECT run_id, arg_max(num_steps, seq) AS steps FROM workloads
            WHERE {MINE} GROUP BY run_id),
        said AS (
            SELECT run_id, arg_max(coalesce(error, ''), seq) AS error,
                arg_max(message, seq) AS message
            FROM errors WHERE {MINE} GROUP BY run_id)"""
REASON = f"""
            reason, CASE WHEN state = '{RunState.FAILED}' THEN error END AS error, message"""
NUM_STEPS = """
            -- A script says by itself how many steps it makes, some only when it has.
            coalesce(nullif(num_steps, 0), planned.steps, 0) AS num_steps"""


TAKEN_IN = ("journal_offset", "journal_inode", "last_seq")
"""Columns that say how far the journal was read."""


def list_runs(store: Store, experiment_id: str) -> pd.DataFrame:
    """The runs of an experiment in the order of its variants, with how each stands right now.

    `compiling_since` and `compile_trigger` tell of a compilation that a running run is in,
    `compiled_seconds` of those before it: a run compiles one graph after the other.
    `last_loss` is None before the first step and of forward passes, which have none; NaN is a loss
    that is not a number. `reason` is, of
    a run that failed with an error, `cause_of` that.
    """
    return runs_as_taken_in(store, experiment_id).drop(columns=[*TAKEN_IN])


@kept
def runs_as_taken_in(store: Store, experiment_id: str) -> pd.DataFrame:
    """The same with the bytes of which journal it is told from."""
    frame = store.query(
        f"""
        WITH phase AS (
            SELECT run_id, arg_max(phase, seq) AS phase, arg_max(time, seq) AS phase_started,
                min(time) AS started
            FROM phases WHERE {MINE} GROUP BY run_id),
        compiling AS (
            SELECT run_id, arg_min(time, seq) AS since, arg_min(trigger, seq) AS trigger
            FROM compile_starts s
            WHERE s.{MINE} AND NOT EXISTS (
                FROM compile_ends e
                WHERE e.{MINE} AND e.run_id = s.run_id AND e.seq > s.seq
                    AND e.compile_id IS NOT DISTINCT FROM s.compile_id
                    AND e.trigger IS NOT DISTINCT FROM s.trigger)
            GROUP BY run_id),
        -- Compilations lie within each other, and within the one that goes on.
        covered AS (
            SELECT run_id, time - seconds AS start,
                least(time, coalesce(since, time)) AS "end",
                max(time) OVER (PARTITION BY run_id ORDER BY time - seconds
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM compile_ends e LEFT JOIN compiling USING (run_id)
            WHERE e.{MINE} AND isfinite(seconds)),
        compiled AS (
            SELECT run_id,
                sum(greatest(0, "end" - greatest(start, coalesce(before, start)))) AS seconds
            FROM covered GROUP BY run_id),
        done AS (
            SELECT run_id, count(*) AS steps_done, arg_max(loss, step) AS last_loss,
                count(loss) AS num_losses,
                median(seconds) FILTER (steady) AS steady_step_seconds
            FROM judged_steps($1) GROUP BY run_id),
        {PLANNED_AND_SAID}
        SELECT run_id, label, role, backend, state, phase, phase_started, {REASON},
            CASE WHEN state = '{RunState.RUNNING}' THEN since END AS compiling_since,
            CASE WHEN state = '{RunState.RUNNING}' THEN trigger END AS compile_trigger,
            coalesce(compiled.seconds, 0) AS compiled_seconds,
            coalesce(steps_done, 0) AS steps_done, {NUM_STEPS}, last_loss, num_losses,
            steady_step_seconds,
            coalesce(claimed, started) AS started, ended, folder, {", ".join(TAKEN_IN)}
        FROM runs JOIN progress USING (run_id) LEFT JOIN phase USING (run_id)
            LEFT JOIN compiling USING (run_id) LEFT JOIN compiled USING (run_id)
            LEFT JOIN done USING (run_id) LEFT JOIN said USING (run_id)
            LEFT JOIN planned USING (run_id)
        WHERE {MINE} ORDER BY position""",
        [store.number_of(experiment_id)],
    )
    has_loss = frame.pop("num_losses") > 0
    frame["last_loss"] = frame["last_loss"].astype(object).where(has_loss, None)
    for column in ("phase_started", "compiling_since", "started", "ended"):
        frame[column] = timestamp(frame[column])
    return _with_causes(frame)


@kept
def run_states(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, backend, state, reason, num_steps of `list_runs`, which looks at every
    step for the rest; and `left_out`, the number of events of its journal that do not count,
    because they did not come after those before them, and `missing`, that of events which should
    stand between the others."""
    frame = store.query(
        f"""
        WITH {PLANNED_AND_SAID}
        SELECT run_id, label, role, backend, state, left_out, missing, {REASON}, {NUM_STEPS}
        FROM runs JOIN progress USING (run_id)
            LEFT JOIN said USING (run_id) LEFT JOIN planned USING (run_id)
        WHERE {MINE} ORDER BY position""",
        [store.number_of(experiment_id)],
    )
    return _with_causes(frame)


def _with_causes(frame: pd.DataFrame) -> pd.DataFrame:
    """Error and message, where a run has them, in one line as the reason of its end."""
    for row, error, message in zip(
        frame.index, frame.pop("error"), frame.pop("message"), strict=True
    ):
        if isinstance(error, str) and isinstance(message, str):
            frame.loc[row, "reason"] = cause_of(error, message)
    return frame


def unreadable(store: Store) -> pd.DataFrame:
    """Folders that should be run folders and cannot be read, and what is wrong with them."""
    return store.query("SELECT folder, message FROM unreadable ORDER BY folder")
