"""Why a backend is faster, from journals to sentences; and what is said without a profile."""

import itertools
import json
import math
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.__main__ import main
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import Explanation, explain, profiles_table
from breakeven.storage.terminal.as_json import explanation_json
from breakeven.storage.terminal.report import explain_report
from breakeven.storage.words.profile import bridge_words, unprofiled_words
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec

pytestmark = pytest.mark.heavy  # whole commands over stores of their own: many seconds

GEMM = {"name": "nvjet_sm90_tst_1", "op": "aten::mm", "phase": "forward", "dtype": "bf16"}
ADD = {"name": "void elementwise_kernel<4>", "op": "aten::add", "phase": "forward"}
TRITON = {"name": "triton_poi_fused_add_0"}


def record(data_dir: DataDir, *, profiled: bool = True, device_type: str = "cuda") -> None:
    """Baseline 100 ms: 50 + 30 of kernels. Inductor 60 ms: 40 + 8. Three turns each."""
    spec = experiment_spec(num_steps=80)
    for label, seconds, kernels in (
        ("baseline", 0.100, [GEMM | {"seconds": 0.050}, ADD | {"seconds": 0.030}]),
        ("control", 0.100, [GEMM | {"seconds": 0.050}, ADD | {"seconds": 0.030}]),
        ("inductor", 0.060, [GEMM | {"seconds": 0.040}, TRITON | {"seconds": 0.008}]),
    ):
        run = Recording(data_dir.runs, label, spec).claim()
        run.start(environment={"device_type": device_type})
        run.blocks([seconds] * 8, [1.0] * 80, 9.0 if label == "inductor" else 0.0)
        for _ in range(3 * profiled):
            run.profile(kernels)
        run.end()


def explained(data_dir: DataDir) -> Explanation:
    with Store.in_memory(data_dir) as store:
        return explain(store, EXPERIMENT_ID)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    data_dir = DataDir(tmp_path_factory.mktemp("profiled"))
    record(data_dir)
    return data_dir


@pytest.fixture(scope="module")
def known(profiled: DataDir) -> Explanation:
    return explained(profiled)


def test_a_sentence_says_what_was_saved_and_what_was_added(known: Explanation) -> None:
    """80 ms of kernels to 48 is 1.67x; idle goes from 20 to 12 ms."""
    words = str(bridge_words(known.bridges["inductor"], known.own_speedups["inductor"]))
    assert words.startswith("60.0 ms a step, 40.0 ms less than the baseline.")
    assert (
        "Saved: 30.0 ms in “elementwise and reductions, not fused”, 10.0 ms in "
        "“matrix products in bf16”, 8.00 ms in “device idle”."
    ) in words
    assert "Added: 8.00 ms in “fused by the compiler”." in words
    assert "1.67x (1.67 to 1.67)" in words and "on any host" in words


def test_without_a_profile_timings_are_the_same(known: Explanation, data_dir: DataDir) -> None:
    """Where the CPUs are the device nothing idles, and there is one speedup."""
    on_cpu = DataDir(data_dir.path / "cpu")
    record(on_cpu, device_type="cpu")
    explanation = explained(on_cpu)
    assert not explanation.own_speedups
    assert "Python, between operators" in explain_report(explanation)
    assert not [finding for finding in explanation.findings if finding.kind == "device_idle"]
    record(data_dir, profiled=False)
    without = explained(data_dir)
    assert known.comparison.table().equals(without.comparison.table())
    assert not without.is_known and not without.bridges and not without.findings
    assert unprofiled_words(without) in explain_report(without)


def test_the_json_has_the_parts_of_each_difference(known: Explanation) -> None:
    """100 ms less 60 are 40, of which kernels saved 32 and idle time 8."""
    explanation = json.loads(explanation_json(known))
    (bridge,) = explanation["bridges"]
    parts = {part["work_class"]: part["difference"] for part in bridge["parts"]}
    assert bridge["difference"] == pytest.approx(-0.040) and explanation["why_not"] is None
    assert sum(parts.values()) == pytest.approx(-0.040)
    assert parts["idle"] == pytest.approx(-0.008)
    assert bridge["own_speedup"]["ratio"] == pytest.approx(80 / 48)
    profile = explanation["profiles"][0]
    assert sum(profile["by_class"].values()) == pytest.approx(profile["step_seconds"])
    assert {kernel["name"] for kernel in profile["kernels"]} == {GEMM["name"], ADD["name"]}


def test_steps_that_were_waited_for_after_a_profile_do_not_count(data_dir: DataDir) -> None:
    """A profile makes later steps slower. The median of 40, 41 and 45 ms is 41."""
    run = Recording(data_dir.runs, "baseline", experiment_spec(num_steps=80)).claim().start()
    run.blocks([0.1] * 8, [1.0] * 80)
    run.profile([GEMM | {"seconds": 0.03}], waited_seconds=[0.045, 0.040, 0.041])
    run.profile([GEMM | {"seconds": 0.02}], waited_seconds=[0.060, 0.061, 0.062])
    run.end()
    (row,) = profiles_table(explained(data_dir)).to_dict("records")
    assert row["waited_for"] == pytest.approx(0.041)


def test_a_turn_in_which_something_compiled_or_failed_does_not_count(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=80)
    for label in ("baseline", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([0.1] * 8, [1.0] * 80)
        run.profile([GEMM | {"seconds": 0.9}], compiled=True)
        run.profile([GEMM | {"seconds": 0.05}])
        run.profile([], busy_seconds=None, failure="RuntimeError: no CUPTI")
        run.end()
    explanation = explained(data_dir)
    profile = explanation.profile_of("inductor")
    assert profile.busy_seconds == pytest.approx(0.05)
    assert profile.failures == ("RuntimeError: no CUPTI",)
    assert profile.cost_seconds == pytest.approx(1.5)


def test_the_command_prints_findings(profiled: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXPERIMENT_ID, "--data-folder", str(profiled.path)]) == 0
    said = capsys.readouterr().out
    assert "inductor: 60.0 ms a step" in said
    assert "whole step" in said and "-40.0 ms" in said
    assert "the device waits" in said
    assert "control has no profile" not in said


def test_impossible_profiles_explain_nothing(data_dir: DataDir) -> None:
    """Of every other experiment the device is the CPU."""
    turns: list[dict[str, Any]] = [
        {"seconds": 0.0},
        {"seconds": math.inf},
        {"busy_seconds": -1.0},
        {"busy_seconds": math.nan},
        {"launches": None, "host_seconds": None},
    ]
    cases = [(0.05, turn) for turn in turns] + [
        (bad_seconds, {}) for bad_seconds in (math.nan, math.inf, -5.0)
    ]
    ids = [f"20261121-0930{number:02d}-123456-7f3a" for number in range(len(cases))]
    devices = itertools.cycle(("cuda", "cpu"))
    for experiment_id, device_type, (seconds, turn) in zip(ids, devices, cases, strict=False):
        for label in ("baseline", "inductor"):
            run = Recording(data_dir.runs, label, experiment_spec(80), experiment_id).claim()
            run.start(environment={"device_type": device_type}).blocks([0.1] * 8, [1.0] * 80)
            profile = {"seconds": 0.1, "busy_seconds": 0.05} | turn
            run.profile([GEMM | {"seconds": seconds}], **profile).end()
    with Store.in_memory(data_dir) as store:
        for experiment_id, (_, turn) in zip(ids, cases, strict=True):
            explanation = explain(store, experiment_id)
            believable = "launches" in turn
            assert explanation.is_known is believable, turn
            assert ("a step" in explain_report(explanation)) is believable
