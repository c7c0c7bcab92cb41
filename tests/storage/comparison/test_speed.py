"""The scenario `speed` in the store: warm-up, repeats pooled, how measuring ended; by hand."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from breakeven.runner.arguments.conditions import Condition
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.storage.commands import exit_status
from breakeven.storage.exchange.benchmark_formats import rows
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.speedups import paired_ratio
from breakeven.storage.terminal.gate import reasons
from breakeven.storage.terminal.report import report
from tests.helpers.comparisons import compared, minor_warnings_of, row_of, warnings_of
from tests.helpers.journals import EXPERIMENT_ID
from tests.helpers.speed_journals import (
    ENOUGH,
    NUM_ROUNDS,
    record_repeats,
    record_speed,
    speed_spec,
)

pytestmark = pytest.mark.heavy


def test_warm_up_counts_for_nothing_but_compile_latency(data_dir: DataDir) -> None:
    spec = speed_spec()
    record_speed(data_dir, "baseline", spec, 0.2)
    record_speed(data_dir, "control", spec, 0.2)
    record_speed(data_dir, "eager", spec, 0.1, compile_seconds=3.0)
    comparison = compared(data_dir)
    eager = row_of(comparison, "eager")
    assert (eager.speedup.median, eager.speedup.n) == (pytest.approx(2.0), NUM_ROUNDS)
    assert (eager.measured.step_seconds, eager.speed_verdict) == (pytest.approx(0.1), "faster")
    # The first step took 2 x 0.1 s + 3 s, one steady step of 0.1 s is taken off.
    assert eager.measured.compile_seconds == pytest.approx(3.1)
    assert eager.break_even.steps == pytest.approx(31)
    assert warnings_of(comparison) == ()
    assert f"Measuring ended after 8 rounds: {ENOUGH}." in minor_warnings_of(comparison)
    assert comparison.noise_floor == 0.0


def test_training_keeps_the_verdict_on_parity_and_inference_has_none(data_dir: DataDir) -> None:
    for part, parity in (("training", "holds"), ("inference", None)):
        folder = DataDir(data_dir.path / part)
        for label, step_seconds in (("baseline", 0.2), ("control", 0.2), ("eager", 0.1)):
            record_speed(folder, label, speed_spec(part), step_seconds, num_rounds=20)
        comparison = compared(folder)
        eager = row_of(comparison, "eager").parity
        assert (eager and eager.verdict) == parity
        assert exit_status(comparison) == 0
        judged = reasons(comparison, [Condition(name="parity")])
        assert bool(judged) is (parity is None)
        assert not judged or "the scenario accuracy" in judged[0]
        table = report(comparison)
        assert ("parity" in table, "final loss" in table) == (parity is not None,) * 2
        assert "accuracy" not in table.splitlines()[2]


def test_repeats_are_one_row_and_how_they_differ_is_in_the_interval(data_dir: DataDir) -> None:
    record_repeats(data_dir, (2.0, 2.2, 1.8))
    comparison = compared(data_dir)
    with Store.in_memory(data_dir) as store:
        (row,) = rows(store, EXPERIMENT_ID)
    assert (row["tag"], row["speedup"]) == ("eager", pytest.approx(1.9933, abs=1e-4))
    assert [result.label for result in comparison.results] == ["baseline", "control", "eager"]
    eager = row_of(comparison, "eager")
    # Logarithms 0.6931, 0.7885, 0.5878: mean 0.6898, deviation 0.1004, and 4.303 x 0.1004 / sqrt 3
    # is 0.2494 to both sides.
    assert eager.speedup.median == pytest.approx(1.9933, abs=1e-4)
    assert eager.speedup.low == pytest.approx(math.exp(0.6898 - 0.2494), abs=1e-3)
    assert eager.speedup.high == pytest.approx(math.exp(0.6898 + 0.2494), abs=1e-3)
    assert eager.speedup.n == 3 * NUM_ROUNDS
    # Two degrees of freedom: 1 - t / sqrt(2 + t^2), where t = 0.6898 / (0.1004 / sqrt 3) = 11.90.
    assert eager.speedup.p_value == pytest.approx(0.00698, abs=5e-5)
    assert eager.speed_verdict == "faster"
    assert eager.measured.step_seconds == pytest.approx(0.1)
    # First steps of two steps and 1, 2, 3 s of compiling; a steady step takes 0.1 s: of the middle
    # process 2 x 0.2 / 2.2 + 2 - 0.1.
    assert eager.measured.compile_seconds == pytest.approx(2 * 0.2 / 2.2 + 2 - 0.1)
    warnings = warnings_of(comparison)
    assert "Measuring ended after 8, 8 and 8 rounds in 3 of 3 repeats" in " ".join(warnings)
    # exp(2 x 0.2494) - 1
    assert [line for line in warnings if "wider" in line] == [
        "Intervals are wider than the requested 2.0 %: eager 64.7 %; processes of the same run "
        "differ, and only more repeats show by how much."
    ]


def test_repeats_without_a_compiler_are_not_said_to_have_compiled_nothing(
    data_dir: DataDir,
) -> None:
    spec = replace(speed_spec(repeats=3), backends=("none:optimizer=fused", "eager"))
    for repeat in (1, 2, 3):
        for label in ("baseline", "control", "none-fused", "eager"):
            record_speed(data_dir, f"{label}-{repeat}", spec, 0.2, captures=False)
    (idle,) = (line for line in warnings_of(compared(data_dir)) if line.startswith("Nothing was"))
    assert idle.startswith("Nothing was compiled in eager:")


def test_a_repeat_that_failed_is_named_and_the_others_are_pooled(data_dir: DataDir) -> None:
    record_repeats(data_dir, (2.0, 2.0, 2.0))
    (folder,) = data_dir.runs.glob("*.eager-2")
    run = next(run_dir for run_dir in data_dir.run_dirs() if run_dir.path == folder)
    lines = run.events_file.read_text().splitlines(keepends=True)
    run.events_file.write_text("".join(lines[:8]))
    run.write_exit(Exit.now(RunState.FAILED, "it broke", 1))
    comparison = compared(data_dir)
    eager = row_of(comparison, "eager")
    assert eager.state == "failed"
    assert any(
        re.fullmatch(r"eager-2 failed at step \d+ of \d+: it broke\.", line)
        for line in warnings_of(comparison)
    )
    assert eager.speedup.n == 2 * NUM_ROUNDS
    # Parity is judged by the process that came farthest, which did not fail.
    assert eager.parity.verdict == "holds"


def test_one_process_left_of_several_is_a_warning(data_dir: DataDir) -> None:
    spec = speed_spec(repeats=2)
    for label in ("baseline", "control", "eager"):
        rounds = 3 if label == "eager" else NUM_ROUNDS
        record_speed(data_dir, f"{label}-1", spec, 0.2)
        record_speed(data_dir, f"{label}-2", spec, 0.2, num_rounds=rounds)
    (warning,) = [line for line in warnings_of(compared(data_dir)) if "one process" in line]
    assert warning.startswith("Only one process of 2 was measured long enough in eager")


SPENT = "the budget of 9 rounds is spent; intervals are wider than the requested 2 %: eager 9 %"
TOO_WIDE = {"cause": "rounds", "budget": 9, "target_width": 0.02, "too_wide": {"eager": 0.09}}


@pytest.mark.parametrize("ending", [TOO_WIDE, None, {"cause": "rounds"}, {"cause": "no such"}])
def test_a_spent_budget_is_told_without_the_widths_of_that_moment(
    data_dir: DataDir, ending: dict[str, Any] | None
) -> None:
    """Without figures the reason stays."""
    record_speed(data_dir, "baseline", speed_spec(), 0.2, reason=SPENT, ending=ending)
    said = "the budget of 9 rounds is spent" if ending == TOO_WIDE else SPENT
    assert f"Measuring ended after 8 rounds: {said}." in minor_warnings_of(compared(data_dir))
    assert Ending(**TOO_WIDE).reason == SPENT


def test_a_difference_that_only_some_processes_show_is_not_significant() -> None:
    other = np.ones(60)
    baseline = np.repeat([1.10, 0.99, 1.02], 20) * np.tile([0.999, 1.001], 30)
    # By its sign alone each round of two processes of three speaks for a speedup: 40 of 60.
    alone = paired_ratio(baseline, other)
    known = paired_ratio(baseline, other, np.repeat([1, 2, 3], 20))
    assert alone.p_value is not None and alone.p_value < 0.02
    assert known.p_value is not None and known.p_value > 0.3
    assert known.low is not None and known.high is not None and known.low < 1 < known.high
