"""The scenario `speed` in the store: warm-up, repeats pooled, how measuring ended; by hand."""

import math
import re
from typing import Any

import numpy as np
import pytest

from breakeven.runner.commands.conditions import Condition
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import Exit, RunState
from breakeven.runner.supervision.stopping_rule import Ending
from breakeven.storage.commands import exit_status
from breakeven.storage.exchange.formats import rows
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.intervals import p_of_processes, typical
from breakeven.storage.statistics.speedups import paired_ratio
from breakeven.storage.terminal.gate import reasons
from breakeven.storage.terminal.report import report
from tests.helpers.comparisons import compared, notes_of, row_of, warnings_of
from tests.helpers.journals import EXPERIMENT_ID
from tests.helpers.speed_journals import (
    ENOUGH,
    NUM_ROUNDS,
    record_repeats,
    record_speed,
    speed_spec,
)

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("part", ["training", "inference"])
def test_warm_up_counts_for_nothing_but_compile_latency(part: str, data_dir: DataDir) -> None:
    spec = speed_spec(part)
    record_speed(data_dir, "baseline", spec, 0.2)
    record_speed(data_dir, "control", spec, 0.2)
    record_speed(data_dir, "eager", spec, 0.1, compile_seconds=3.0)
    comparison = compared(data_dir)
    eager = row_of(comparison, "eager")
    assert (eager.speedup.median, eager.speedup.n) == (pytest.approx(2.0), NUM_ROUNDS)
    assert (eager.measured.step_seconds, eager.speed_verdict) == (pytest.approx(0.1), "faster")
    # The first step took 2 x 0.1 s + 3 s, one steady step of 0.1 s is taken off.
    assert eager.measured.compile_seconds == pytest.approx(3.1)
    assert eager.break_even is not None and eager.break_even.steps == pytest.approx(31)
    assert warnings_of(comparison) == ()
    assert f"Measuring ended after 8 rounds: {ENOUGH}." in notes_of(comparison)
    assert comparison.noise_floor == 0.0


def test_training_keeps_the_verdict_on_parity_and_inference_has_none(data_dir: DataDir) -> None:
    for part, parity in (("training", "holds"), ("inference", None)):
        folder = DataDir(data_dir.path / part)
        for label, step_seconds in (("baseline", 0.2), ("control", 0.2), ("eager", 0.1)):
            record_speed(folder, label, speed_spec(part), step_seconds, num_rounds=20)
        comparison = compared(folder)
        found = row_of(comparison, "eager").parity
        assert (found and found.verdict) == parity
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
    assert [one.label for one in comparison.results] == ["baseline", "control", "eager"]
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
    assert "Measuring ended after 8, 8 and 8 rounds in 3 of 3 repeats" in " ".join(
        warnings_of(comparison)
    )


def test_intervals_wider_than_asked_are_a_warning_that_says_what_would_help(
    data_dir: DataDir,
) -> None:
    record_repeats(data_dir, (2.0, 2.2, 1.8))
    (warning,) = [one for one in warnings_of(compared(data_dir)) if "wider" in one]
    # exp(2 x 0.2494) - 1
    assert warning == (
        "Intervals are wider than the requested 2.0 %: eager 64.7 %; processes of the same run "
        "differ, and only more repeats show by how much."
    )


def test_compile_latency_of_repeats_is_that_of_the_middle_process(data_dir: DataDir) -> None:
    record_repeats(data_dir, (2.0, 2.0, 2.0))
    # First steps of 0.2 s and 1, 2, 3 s of compiling; a steady step takes 0.1 s.
    assert row_of(compared(data_dir), "eager").measured.compile_seconds == pytest.approx(2.1)


def test_a_repeat_that_failed_is_named_and_the_others_are_pooled(data_dir: DataDir) -> None:
    record_repeats(data_dir, (2.0, 2.0, 2.0))
    (folder,) = data_dir.runs.glob("*.eager-2")
    run = next(one for one in data_dir.run_dirs() if one.path == folder)
    lines = run.events_file.read_text().splitlines(keepends=True)
    run.events_file.write_text("".join(lines[:8]))
    run.write_exit(Exit.now(RunState.FAILED, "it broke", 1))
    comparison = compared(data_dir)
    eager = row_of(comparison, "eager")
    assert eager.state == "failed"
    assert any(
        re.fullmatch(r"eager-2 failed at step \d+ of \d+: it broke\.", one)
        for one in warnings_of(comparison)
    )
    assert eager.speedup is not None and eager.speedup.n == 2 * NUM_ROUNDS
    # Parity is judged by the process that came farthest, which did not fail.
    assert eager.parity is not None and eager.parity.verdict == "holds"


def test_one_process_left_of_several_is_no_ground_to_tell_how_they_differ(
    data_dir: DataDir,
) -> None:
    spec = speed_spec(repeats=2)
    for label in ("baseline", "control", "eager"):
        rounds = 3 if label == "eager" else NUM_ROUNDS
        record_speed(data_dir, f"{label}-1", spec, 0.2)
        record_speed(data_dir, f"{label}-2", spec, 0.2, num_rounds=rounds)
    (warning,) = [one for one in warnings_of(compared(data_dir)) if "one process" in one]
    assert warning.startswith("Only one process of 2 was measured long enough in eager")


SPENT = "the budget of 9 rounds is spent; intervals are wider than the requested 2 %: eager 9 %"


def notes_of_spent(data_dir: DataDir, ending: dict[str, Any] | None) -> tuple[str, ...]:
    for label in ("baseline", "control", "eager"):
        record_speed(data_dir, label, speed_spec(), 0.2, reason=SPENT, ending=ending)
    return notes_of(compared(data_dir))


def test_a_spent_budget_is_told_without_the_widths_of_that_moment(data_dir: DataDir) -> None:
    too_wide = {"eager": 0.09}
    ending = {"cause": "rounds", "budget": 9, "target_width": 0.02, "too_wide": too_wide}
    assert Ending(**ending).reason == SPENT
    notes = notes_of_spent(data_dir, ending)
    assert "Measuring ended after 8 rounds: the budget of 9 rounds is spent." in notes


@pytest.mark.parametrize("ending", [None, {"cause": "rounds"}, {"cause": "no such"}])
def test_without_figures_the_reason_stays(data_dir: DataDir, ending: dict[str, Any] | None) -> None:
    assert f"Measuring ended after 8 rounds: {SPENT}." in notes_of_spent(data_dir, ending)


def test_one_process_has_the_median_and_its_bootstrap() -> None:
    values = [1.0, 1.2, 1.1, 1.3, 1.0, 1.2, 1.15]
    assert typical(values) == typical(values, [7] * 7)
    assert typical(values)[0] == pytest.approx(1.15)


def test_processes_that_agree_by_luck_do_not_make_rounds_more_certain() -> None:
    rounds = np.tile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], 3)
    middle, low, high = typical(rounds, np.repeat([1, 2, 3], 9))
    _, own_low, own_high = typical(rounds[:9])
    assert middle == 5.0
    # Three processes know the middle better than one, by the root of three, and no better.
    assert high - low == pytest.approx((own_high - own_low) / math.sqrt(3))


def test_a_process_of_few_rounds_does_not_count_beside_others() -> None:
    values = [1.0] * 8 + [3.0] * 8 + [100.0] * 5
    middle, _, _ = typical(values, [1] * 8 + [2] * 8 + [3] * 5)
    assert middle == 2.0
    assert typical([1.0, 2.0, 3.0], [1, 2, 3]) == (2.0, None, None)


def test_the_p_value_of_processes_is_that_of_students_t() -> None:
    # Medians 1, 2, 3: mean 2, error 1 / sqrt 3, t = 3.464; 1 - 3.464 / sqrt(14) with two degrees.
    values = np.repeat([1.0, 2.0, 3.0], 6)
    processes = np.repeat([1, 2, 3], 6)
    assert p_of_processes(values, processes) == pytest.approx(1 - math.sqrt(12 / 14))
    assert p_of_processes(values, None) == 0.0
    assert p_of_processes(0 * values, processes) == 1.0


def test_a_difference_that_only_some_processes_show_is_not_significant() -> None:
    other = np.ones(60)
    baseline = np.repeat([1.10, 0.99, 1.02], 20) * np.tile([0.999, 1.001], 30)
    # By its sign alone each round of two processes of three speaks for a speedup: 40 of 60.
    alone = paired_ratio(baseline, other)
    known = paired_ratio(baseline, other, np.repeat([1, 2, 3], 20))
    assert alone.p_value is not None and alone.p_value < 0.02
    assert known.p_value is not None and known.p_value > 0.3
    assert known.low is not None and known.high is not None and known.low < 1 < known.high


def test_repeats_leave_as_one_row_of_the_harness(data_dir: DataDir) -> None:
    record_repeats(data_dir, (2.0, 2.0, 2.0))
    with Store.in_memory(data_dir) as store:
        (row,) = rows(store, EXPERIMENT_ID)
    assert (row["tag"], row["speedup"]) == ("eager", pytest.approx(2.0))
    assert row["abs_latency"] == 100.0
