"""Finds the statuses of the scenario `accuracy`: whether backends compute what the model defines.

The status is the one that the run recorded. If it recorded none, its state at the end determines
the status. `docs/metrics.md` has the rule. `growths` finds where a backend's errors grow, in the
order of the model's computation.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import ACTIVATION, Part
from breakeven.storage import queries
from breakeven.storage.index.store import Store

MAX_WORST = 3
PASS = "pass"
Outcome = Literal["passes", "differs", "failed", "undecided", "open"]
"""Meaning of a status: the backend's numbers are right; they are wrong; the backend produced none;
the baseline or the model produced none to compare with; or the status is not known yet."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One part of one run. None means not known yet or never measured."""

    label: str
    state: RunState
    part: Part
    status: str | None
    """A status name of PyTorch's Dynamo harness."""
    message: str | None
    """Why nothing was compared."""
    tolerance: float | None
    num_tensors: int
    num_failed: int
    worst: tuple[str, ...]
    """The tensors with the largest errors, at most 3, each with its error over the limit."""
    notes: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        if self.status is None:
            return "open"
        if self.status.startswith("eager_") or self.status == "model_fail_to_load":
            return "undecided"
        words: dict[str, Outcome] = {PASS: "passes", "fail_accuracy": "differs"}
        return words.get(self.status, "failed")

    @property
    def explanation(self) -> str:
        """Why the check did not pass; empty if it passed or is not over."""
        return self.message or "; ".join(self.worst)


def checks(store: Store, experiment_id: str, spec: ExperimentSpec) -> list[Check]:
    """All parts of all runs of an experiment of the scenario `accuracy`, run by run."""
    runs = queries.list_runs(store, experiment_id)
    loaded = set(queries.workloads(store, experiment_id)["run_id"])
    statuses = queries.accuracy_statuses(store, experiment_id)
    tensors = judged(queries.accuracy_tensors(store, experiment_id))
    return [
        _check(
            run, part, run["run_id"] in loaded, _of(statuses, run, part), _of(tensors, run, part)
        )
        for run in runs.to_dict("records")
        for part in spec.accuracy.parts
    ]


def judged(tensors: pd.DataFrame) -> pd.DataFrame:
    """The rows of `queries.accuracy_tensors` that decide the verdict, without outputs of layers."""
    return tensors[tensors["quantity"] != ACTIVATION]


def table(checks: list[Check]) -> pd.DataFrame:
    """One row per check, as pages and downloads show it."""
    return pd.DataFrame(
        [
            {
                "run": check.label,
                "part": check.part,
                "status": check.status,
                "num_tensors": check.num_tensors,
                "num_failed": check.num_failed,
                "tolerance": check.tolerance,
                "worst": check.explanation,
            }
            for check in checks
        ]
    )


def _of(frame: pd.DataFrame, run: dict[str, object], part: Part) -> pd.DataFrame:
    return frame[(frame["run_id"] == run["run_id"]) & (frame["part"] == part)]


def _check(
    run: dict[str, str], part: Part, loaded: bool, status: pd.DataFrame, tensors: pd.DataFrame
) -> Check:
    state = RunState(run["state"])
    recorded = status.iloc[-1].to_dict() if len(status) else {}
    failed = tensors[~tensors["passed"]]
    # A tensor whose error is not a number is the worst of all.
    worst = failed.sort_values("error_ratio", ascending=False, na_position="first", kind="stable")
    return Check(
        label=run["label"],
        state=state,
        part=part,
        status=recorded.get("status") or _status_of(state, loaded),
        message=recorded.get("message") or (None if recorded else _text(run["reason"])),
        tolerance=recorded.get("tolerance"),
        num_tensors=len(tensors),
        num_failed=len(failed),
        worst=tuple(map(_named, worst.head(MAX_WORST).to_dict("records"))),
        notes=tuple(recorded.get("notes") or ()),
    )


def _status_of(state: RunState, loaded: bool) -> str | None:
    """The harness's status for a run that ended without recording one."""
    if state in (RunState.FAILED, RunState.LOST):
        return "fail_to_run" if loaded else "model_fail_to_load"
    return {RunState.TIMEOUT: "timeout", RunState.OUT_OF_MEMORY: "OOM"}.get(state)


def _named(tensor: dict[str, object]) -> str:
    quantity, name, ratio = tensor["quantity"], tensor["tensor"], tensor["error_ratio"]
    title = f"{name}" if quantity in ("output", "loss") else f"{quantity} of {name}"
    return f"{title}, not comparable" if pd.isna(ratio) else f"{title}, {ratio:.3g} x the limit"


def _text(value: object) -> str | None:
    return None if pd.isna(value) else str(value)


Pass = Literal["forward", "backward", "weights"]
PASSES: dict[str, Pass] = {
    ACTIVATION: "forward",
    "output": "forward",
    "loss": "forward",
    "gradient": "backward",
    "parameter": "weights",
    "buffer": "weights",
}
"""Each compared quantity and the pass that computes it. Weights are those after the optimizer's
steps."""
ORDER: tuple[Pass, ...] = ("forward", "backward", "weights")


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The first tensor of a backend whose error exceeds the limit, in one part of the check."""

    label: str
    part: str
    quantity: str
    tensor: str
    ratio: float
    """The error over the limit; infinite if it cannot be compared."""
    is_beyond: bool
    """Whether the error exceeds the limit; if not, it is the largest of all."""


def with_places_of_layers(tensors: pd.DataFrame) -> pd.DataFrame:
    """`storage.queries.accuracy_tensors` of the backends with two additional columns.

    pass: a pass of `PASSES`; place: position of the tensor in the order of the model's layers,
    from 0 within its part and pass, equal for all backends.
    """
    compared = tensors[(tensors["role"] == "backend") & tensors["quantity"].isin(list(PASSES))]
    compared = compared.assign(**{"pass": compared["quantity"].map(PASSES)})
    names = compared[["part", "pass", "quantity", "tensor"]].drop_duplicates()
    # The check records layers last, but they precede the results that they compute.
    names = names.sort_values(
        "quantity", key=lambda quantity: quantity != ACTIVATION, kind="stable"
    )
    names["place"] = names.groupby(["part", "pass"], sort=False).cumcount()
    return compared.merge(names, on=["part", "pass", "quantity", "tensor"], how="left")


def growths(tensors: pd.DataFrame) -> Iterator[Growth]:
    """One growth for each backend and part in the result of `placed`.

    A model computes outputs, then gradients from the last layer to the first, then weights. The
    growth is at the first tensor in this order whose error exceeds the limit; if there is none, at
    the tensor with the largest error.
    """
    for (label, part), part_tensors in tensors.groupby(["label", "part"], sort=False):
        backward = part_tensors["pass"] == "backward"
        computed = part_tensors.assign(
            ratio=[_ratio(row) for row in part_tensors.to_dict("records")],
            turn=[ORDER.index(name) for name in part_tensors["pass"]],
            order=part_tensors["place"].where(~backward, -part_tensors["place"]),
        ).sort_values(["turn", "order"], kind="stable")
        beyond = computed[~computed["passed"].astype(bool)]
        row = beyond.iloc[0] if len(beyond) else computed.loc[computed["ratio"].idxmax()]
        yield Growth(
            label=str(label),
            part=str(part),
            quantity=str(row["quantity"]),
            tensor=str(row["tensor"]),
            ratio=float(row["ratio"]),
            is_beyond=bool(len(beyond)),
        )


def _ratio(row: dict[str, object]) -> float:
    value = row["error_ratio"]
    return float(value) if isinstance(value, float) and not math.isnan(value) else math.inf
