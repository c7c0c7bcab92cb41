"""Loads all that an experiment's runs recorded, for their comparison, and pools repeats: the
processes of the scenario `speed` that recorded the same run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.comparison.evidence import (
    Compiling,
    Evidence,
    Journal,
    Learning,
    Randomness,
    Stop,
)
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.queries.rows import ends_of_runs

FOUND_BY_BASELINE = ("flops_per_step", "precision")
"""Fields of `workload`."""


def load_evidence(store: Store, experiment_id: str) -> tuple[ExperimentSpec, list[Evidence]]:
    """All runs of an experiment, in the order of its arms; raises `NotInStore`."""
    runs = queries.run_states(store, experiment_id)
    if runs.empty:
        raise NotInStore(
            f"no experiment {experiment_id!r} in {store.data_dir.runs} or among the examples"
        )
    spec = queries.experiment_spec(store, experiment_id)
    breaks = _of_training(queries.graph_breaks(store, experiment_id))
    series = {
        "steps": queries.step_times(store, experiment_id),
        "blocks": queries.blocks(store, experiment_id),
        "device": _samples(queries.device_samples(store, experiment_id), spec),
        "scores": queries.evaluation_metrics(store, experiment_id),
        "answers": queries.answers(store, experiment_id),
        "compiled_frames": _of_training(queries.compile_metrics(store, experiment_id)),
        # Omits the breaks that torch makes if several devices share a run.
        "graph_breaks": breaks[breaks["cause"] == "code"],
    }
    series["blocks"] = _with_joules(series["blocks"], series["device"])
    series["later_blocks"] = series["blocks"][series["blocks"]["starts_later"]]
    series["blocks"] = series["blocks"][~series["blocks"]["starts_later"]]
    # Only the database can tell a missing loss from one that is not a number.
    has_all = series["steps"]["loss"].notna().all()
    losses = losses_by_run(
        series["steps"] if has_all else queries.losses(store, experiment_id, max_points=None)
    )
    frames = {name: _by_run(frame) for name, frame in series.items()}
    resumptions = queries.resumptions(store, experiment_id).to_dict("records")
    stops = _by_run(queries.stops(store, experiment_id))
    evaluations = _by_run(queries.evaluations(store, experiment_id))
    workloads = queries.fields_by_run(queries.workloads(store, experiment_id))
    environments = queries.fields_by_run(queries.environments(store, experiment_id))
    randomness = load_randomness(store, experiment_id)
    sizes = {arm.label: arm.batch_times for arm in spec.possible_arms}
    inputs = _by_run(queries.inputs(store, experiment_id))
    ranks = _by_run(queries.rank_blocks(store, experiment_id))
    keys, caches = (
        _by_run(find(store, experiment_id)) for find in (queries.cache_keys, queries.compile_caches)
    )
    evidence = []
    for run in runs.to_dict("records"):
        run_id, state = run["run_id"], RunState(run["state"])
        workload = workloads.get(run_id, {})
        own = {name: find(run_id) for name, find in frames.items()}
        evidence.append(
            Evidence(
                run_id=run_id,
                label=run["label"],
                role=run["role"],
                backend=None if pd.isna(run["backend"]) else run["backend"],
                state=state,
                reason=None if pd.isna(run["reason"]) else run["reason"],
                num_steps=run["num_steps"] or int(workload.get("num_steps") or 0),
                batch_times=sizes.get(run["label"], 1),
                changes_training=run["label"] in spec.changed_labels,
                steps=own["steps"],
                blocks=own["blocks"],
                later_blocks=own["later_blocks"],
                cache_keys=keys(run_id),
                caches=caches(run_id),
                device=own["device"],
                learning=Learning(
                    losses=losses(run_id),
                    evaluations=_by(evaluations(run_id), "step"),
                    scores=own["scores"],
                    answers=own["answers"],
                    randomness=randomness(run_id),
                    inputs=inputs(run_id),
                    ranks=ranks(run_id),
                    state=state,
                ),
                compiling=Compiling(
                    frames=own["compiled_frames"], graph_breaks=own["graph_breaks"]
                ),
                journal=_journal(run, [row for row in resumptions if row["run_id"] == run_id]),
                stop=_stop(stops(run_id)),
                workload=workload,
                environment=environments.get(run_id, {}),
            )
        )
    if not spec.workload.has_known_length:
        most_steps = max((run.num_steps for run in evidence), default=0)
        evidence = [replace(run, num_steps=run.num_steps or most_steps) for run in evidence]
        evidence = [_as_found_by_baseline(run, evidence) for run in evidence]
    return spec, evidence


def losses_by_run(frame: pd.DataFrame) -> Callable[[str], pd.Series]:
    """Returns a function that finds the recorded losses of a run, by step."""
    find = _by_run(frame)

    def losses(run_id: str) -> pd.Series:
        rows = find(run_id)
        steps = pd.Index(rows["step"].array, name="step")
        losses_by_step = pd.Series(rows["loss"].array, steps, name="loss")
        ascend = steps.is_monotonic_increasing and steps.is_unique
        return losses_by_step if ascend else losses_by_step[~steps.duplicated(keep="last")]

    return losses


def _journal(run: Mapping[Any, Any], resumptions: Sequence[Mapping[Any, Any]]) -> Journal:
    return Journal(
        resumed_at=tuple(row["step"] for row in resumptions if not row["only_times"]),
        added_at=tuple(
            row["step"] for row in resumptions if row["only_times"] and pd.isna(row["caches"])
        ),
        moved_at=moves_to_other_devices(resumptions),
        left_out=run["left_out"],
        missing=run["missing"],
    )


def moves_to_other_devices(
    resumptions: Iterable[Mapping[Any, Any]],
) -> tuple[tuple[int, int, int], ...]:
    """Steps done, devices before and after, for resumptions that changed the number of devices."""
    counts = [
        (resumption["step"], resumption["num_devices_before"], resumption["num_devices"])
        for resumption in resumptions
    ]
    return tuple(
        (step, int(before), int(after))
        for step, before, after in counts
        if not pd.isna(before) and not pd.isna(after) and before != after
    )


def _as_found_by_baseline(run: Evidence, runs: Sequence[Evidence]) -> Evidence:
    """Adds facts about a script that only the baseline finds out but that hold for all runs."""
    baseline = next((run for run in runs if run.role == "baseline"), run)
    of_baseline = baseline.workload
    facts = {
        name: of_baseline.get(name) for name in FOUND_BY_BASELINE if run.workload.get(name) is None
    }
    return replace(run, workload=run.workload | facts) if run.workload else run


def _by_run(frame: pd.DataFrame) -> Callable[[str], pd.DataFrame]:
    """Returns a function that finds the rows of a run. The rows of each run must be consecutive, as
    queries return them; there may be very many."""
    ids = frame["run_id"].array
    parts = {ids[begin]: frame.iloc[begin:end] for begin, end in pairwise(ends_of_runs(frame))}
    nothing = frame.iloc[:0]
    return lambda run_id: parts.get(run_id, nothing)


OF_SAMPLES = [
    "run_id",
    "time",
    "round",
    "first_step",
    "num_steps",
    "steady",
    "wall_seconds",
    "energy_joules",
    "sm_clock_mhz",
    "temperature_celsius",
    "throttled_by",
    "processes",
    "cpus",
    "cpu_frequency_mhz",
    "own_cpu_seconds",
    "busy_cpu_seconds",
    "stolen_cpu_seconds",
    "throttled_periods",
]
"""What a comparison needs of samples; each further column of many rows is copied for each run."""


def _samples(samples: pd.DataFrame, spec: ExperimentSpec) -> pd.DataFrame:
    """Samples without the energy of only some of the devices that share a run: journals from before
    these were summed, and runs on several machines, have the energy of one device or machine."""
    is_sum = samples["energy_devices"].fillna(1) == spec.num_devices
    joules = samples["energy_joules"].where(is_sum)
    return samples[OF_SAMPLES].assign(energy_joules=joules)


def _with_joules(blocks: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    if samples["energy_joules"].isna().all():
        return blocks.assign(joules=math.nan)  # Most devices have no meter, and a join takes time.
    keys = ["run_id", "round", "first_step"]
    readings = samples[[*keys, "energy_joules"]].dropna().drop_duplicates(keys, keep="last")
    joules = readings.rename(columns={"energy_joules": "joules"})
    return blocks.merge(joules, on=keys, how="left")


def _of_training(frame: pd.DataFrame) -> pd.DataFrame:
    """The compiler's rows from training, in the first process of each run."""
    return frame[(frame["phase"] == "training") & (frame["attempt"] == 1)]


def _stop(stops: pd.DataFrame) -> Stop | None:
    if stops.empty:
        return None
    step, reason, ending_text = stops[["step", "reason", "ending"]].iloc[-1]
    ending = None
    if isinstance(ending_text, str):
        with suppress(InvalidSpec):  # Ignores an ending that no supervisor wrote.
            ending = Ending.from_json(ending_text)
    return Stop(int(step), reason or "no reason given", ending)


def _by(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    values = frame[column].to_numpy()
    if not (values[1:] > values[:-1]).all():
        frame = frame.drop_duplicates(column, keep="last")
    return frame.set_index(column)


def load_randomness(store: Store, experiment_id: str) -> Callable[[str], Randomness]:
    """Returns a function that finds a run's records by its id."""
    records = [
        query(store, experiment_id)
        for query in (queries.random_numbers, queries.redraws, queries.rehearsals, queries.dropouts)
    ]
    numbers_of, redraws_of, rehearsals_of, dropouts_of = map(_by_run, records)

    def find(run_id: str) -> Randomness:
        numbers = numbers_of(run_id)
        same = numbers["same"].dropna()
        redraws = redraws_of(run_id).dropna(subset=["distances"])
        rehearsals = rehearsals_of(run_id).dropna(subset=["form", "loss_by_step"])
        return Randomness(
            draws_own_numbers=None if same.empty else not same.iloc[-1],
            loss_spread=_spread(numbers["loss_by_draw"]),
            inference_draws=bool(numbers["inference_draws"].isin([True]).any()),
            distances={
                name: np.asarray(pairs, dtype=float).tolist()
                for name, pairs in zip(redraws["tensor"], redraws["distances"], strict=True)
            },
            changes=dict(zip(redraws["tensor"], redraws["change"].astype(float), strict=True)),
            rehearsals={
                form: pd.Series(np.asarray(losses, dtype=float))
                for form, losses in zip(rehearsals["form"], rehearsals["loss_by_step"], strict=True)
            },
            dropouts=dropouts_of(run_id),
        )

    without_records = Randomness(None, math.nan, False, {}, {}, {}, dropouts_of(""))
    have_records = {run_id for frame in records for run_id in frame["run_id"]}
    return lambda run_id: find(run_id) if run_id in have_records else without_records


def _spread(losses: pd.Series) -> float:
    """Standard deviation of the first half, which was drawn without a compiler."""
    if losses.dropna().empty:
        return math.nan
    drawn = np.asarray(losses.iloc[-1], dtype=float)
    return float(drawn[: len(drawn) // 2].std(ddof=1)) if len(drawn) >= 4 else math.nan


SERIES = ("steps", "device")
"""Frames that are concatenated; `blocks` also gain the number of the process."""


def pool(spec: ExperimentSpec, runs: Sequence[Evidence]) -> list[Evidence]:
    """One run for each entry of `spec.repeats_by_label` that has a run. Blocks gain the column
    `process`: the number of the repeat that computed them, from 1. Rounds of a script that started
    again, or of a run that went on later, are further rounds of the same."""
    by_label = {run.label: run for run in runs}
    repeats = {arm.label: arm.repeat for arm in spec.possible_arms}
    pooled = []
    for label, members in spec.repeats_by_label.items():
        runs_by_repeat = {
            repeats[member]: by_label[member] for member in members if member in by_label
        }
        if runs_by_repeat:
            blocks = [run.blocks.assign(process=repeat) for repeat, run in runs_by_repeat.items()]
            pooled.append(_pool(label, list(runs_by_repeat.values()), blocks))
    return pooled


def _pool(label: str, runs: Sequence[Evidence], blocks: Sequence[pd.DataFrame]) -> Evidence:
    """Combines the times and blocks of all processes. Everything else is equal in all of them and
    comes from the process with the most steps."""
    farthest = max(runs, key=lambda run: len(run.steps))
    worst = next((run for run in runs if run.state is not RunState.FINISHED), farthest)
    if len(runs) == 1:
        return replace(farthest, label=label, blocks=blocks[0])
    series = {name: pd.concat([getattr(run, name) for run in runs]) for name in SERIES}
    return replace(
        farthest,
        label=label,
        state=worst.state,
        reason=worst.reason,
        blocks=pd.concat(blocks),
        journal=replace(
            farthest.journal,
            resumed_at=tuple(step for run in runs for step in run.journal.resumed_at),
            added_at=tuple(step for run in runs for step in run.journal.added_at),
            moved_at=tuple(move for run in runs for move in run.journal.moved_at),
        ),
        **series,
    )
