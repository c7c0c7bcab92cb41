"""Comparisons: written by hand for the code that shows them, and computed from recorded
experiments; their warnings as the terminal prints them."""

import math
from dataclasses import fields
from typing import Any

import pandas as pd

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.pairs import Timing, no_rounds
from breakeven.storage.comparison.plan import choices
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.comparison.run_numbers import CapturedGraphs, RunNumbers
from breakeven.storage.comparison.run_parity import no_band
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.break_even import BreakEven, BreakEvenVerdict
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec

UNTIMED = Timing(
    blocks=pd.DataFrame(columns=["process", "num_steps", "seconds"]),
    rounds=no_rounds(),
    compile_latencies=(),
    has_moved=False,
)
ROLES = {"baseline": "baseline", "control": "control"}


def result(label: str, **values: object) -> Result:
    """A run's result in which only `values` are known."""
    role = ROLES.get(label, "backend")
    known = {
        "run_id": f"x.{label}",
        "label": label,
        "role": role,
        "state": "finished",
        "metrics": {},
        "device_warnings": (),
        "batch_times": 1,
        "timing": UNTIMED,
        "graphs": CapturedGraphs(num_operations=None, num_graphs=None, num_break_reasons=None),
        **values,
    }

    def only(kind: type) -> dict[str, Any]:
        return {field.name: known.get(field.name) for field in fields(kind)}

    return Result(**{**only(Result), "measured": RunNumbers(**only(RunNumbers))})


def pays(
    verdict: BreakEvenVerdict,
    steps: float | None = None,
    low: float | None = None,
    high: float | None = None,
    *,
    gain: float = 1.0,
    **values: Any,
) -> BreakEven:
    """A break-even whose compile latency is repaid after so many steps, each of which saves
    `gain`."""
    break_even_steps = {"reached": steps, "until": steps, "never": math.inf, "unsure": None}
    known = {
        "compile_seconds": gain * (steps or 0.0),
        "further_seconds": gain * (steps or 0.0),
        "seconds": None,
        "epochs": None,
        "num_latencies": 1,
        **values,
    }
    return BreakEven(
        verdict=verdict, steps=break_even_steps[verdict], low=low, high=high, gain=gain, **known
    )


def series(column: str, **runs: list[float]) -> pd.DataFrame:
    """One row per step and run, as the queries return it."""
    rows = [
        {
            "run_id": f"x.{label}",
            "label": label,
            "role": ROLES.get(label, "backend"),
            "step": step,
            column: value,
        }
        for label, values in runs.items()
        for step, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def comparison(*results: Result, scenario: str = "train") -> Comparison:
    spec = experiment_spec(scenario=scenario)
    # The labels may differ from the specification's; all runs are in Breakeven's environment.
    spec.environment_by_label.update({result.label: None for result in results})
    return Comparison(
        experiment_id="x",
        spec=spec,
        baseline="baseline",
        results=results,
        warnings=(),
        noise_floor=0.01,
        choices=choices(spec, results),
        band=no_band(),
    )


def compared(data_dir: DataDir, experiment_id: str = EXPERIMENT_ID) -> Comparison:
    """The comparison of a recorded experiment, from a store that is closed again."""
    with Store.in_memory(data_dir) as store:
        return compare(store, experiment_id)


def row_of(comparison: Comparison, label: str) -> Result:
    """The result with that name, which may combine several repeats."""
    return next(result for result in comparison.results if result.label == label)


def warnings_of(comparison: Comparison) -> tuple[str, ...]:
    return tuple(str(warning.words()) for warning in comparison.serious_warnings)


def minor_warnings_of(comparison: Comparison) -> tuple[str, ...]:
    return tuple(str(warning.words()) for warning in comparison.minor_warnings)


def device_warnings_of(result: Result) -> tuple[str, ...]:
    return tuple(str(warning.sentence_without_runs()) for warning in result.device_warnings)
