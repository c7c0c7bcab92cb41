"""Repeats of the scenario `speed`: what several processes of the same run recorded, as of one run.

Every experiment is compared through `load_compared`; where nothing is repeated, a run is compared
as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.evidence import Evidence, load_evidence
from breakeven.storage.index.store import Store
from breakeven.storage.memo import memo, revision

SERIES = ("steps", "device")
"""Frames that are strung together; `blocks` tell the processes apart."""


@memo(revision)
def load_compared(store: Store, experiment_id: str) -> tuple[ExperimentSpec, list[Evidence]]:
    """What is compared, in the order of the experiment; raises `NotInStore`."""
    spec, runs = load_evidence(store, experiment_id)
    return spec, pool(spec, runs)


def pool(spec: ExperimentSpec, runs: Sequence[Evidence]) -> list[Evidence]:
    """One for each of `spec.repeats_by_label` of which a run is there. Blocks gain the column
    `process`, the number of the repeat."""
    by_label = {run.label: run for run in runs}
    numbers = {variant.label: spec.process_of(variant) for variant in spec.possible_variants}
    pooled = []
    for label, members in spec.repeats_by_label.items():
        found = {numbers[member]: by_label[member] for member in members if member in by_label}
        if found:
            pooled.append(_pool(label, found))
    return pooled


def _pool(label: str, found: Mapping[int, Evidence]) -> Evidence:
    """Times and blocks of all processes; of everything else, which all of them repeat alike, that
    of the process that came farthest."""
    runs = list(found.values())
    farthest = max(runs, key=lambda run: len(run.steps))
    worst = next((run for run in runs if run.state is not RunState.FINISHED), farthest)
    blocks = [run.blocks.assign(process=number) for number, run in found.items()]
    if len(runs) == 1:
        return replace(farthest, label=label, blocks=blocks[0])
    series = {name: pd.concat([getattr(run, name) for run in runs]) for name in SERIES}
    return replace(
        farthest,
        label=label,
        state=worst.state,
        reason=worst.reason,
        blocks=pd.concat(blocks),
        resumed_at=tuple(step for run in runs for step in run.resumed_at),
        moved_at=tuple(move for run in runs for move in run.moved_at),
        **series,
    )
