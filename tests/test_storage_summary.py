"""Backends over several workloads, against means worked out by hand."""

from pathlib import Path

import pytest

from runner.run_dir import DataDir, RunState
from runner.spec import ExperimentSpec
from storage.comparison import compare
from storage.store import Store
from storage.summary import Summary, geometric_mean, summarize
from tests.journals import Recording, experiment_spec, falling_losses, record_experiment

NUM_BLOCKS = 8
LOSSES = falling_losses(80)


def spec(name: str) -> ExperimentSpec:
    return experiment_spec(num_steps=80, name=name)


def record(runs: Path, name: str, seconds: float, state: RunState = RunState.FINISHED) -> None:
    """An experiment whose baseline takes 0.2 s a step and its backend `seconds`."""
    for label, duration in (("baseline", 0.2), ("control", 0.2), ("inductor", seconds)):
        recording = Recording(runs, label, spec(name), experiment_id=name).claim().start()
        recording.blocks([duration] * NUM_BLOCKS, LOSSES)
        recording.end(state if label == "inductor" else RunState.FINISHED)


def summarized(data_dir: DataDir, *names: str) -> Summary:
    with Store.in_memory(data_dir) as store:
        (summary,) = summarize([compare(store, name) for name in names])
    return summary


def test_the_mean_is_geometric_and_clips_no_slowdown(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    record(data_dir.runs, "fast", 0.1)  # 0.2 / 0.1 = 2
    record(data_dir.runs, "slow", 0.8)  # 0.2 / 0.8 = 1/4
    found = summarized(data_dir, "fast", "slow")
    # sqrt(2 x 1/4) = 0.7071, where a slowdown clipped to 1 would make sqrt(2).
    assert found.geomean_speedup == pytest.approx(0.5**0.5)
    assert found.speedups == {"fast": pytest.approx(2.0), "slow": pytest.approx(0.25)}
    assert (found.label, found.num_workloads, found.failures) == ("inductor", 2, ())


def test_failures_are_named_and_stay_out_of_the_mean(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    record(data_dir.runs, "fine", 0.1)
    record(data_dir.runs, "dies", 0.05, RunState.OUT_OF_MEMORY)
    record_experiment(data_dir.runs, spec("wrong"), "wrong", backend_offset=1.0)
    for label in ("baseline", "control"):
        Recording(data_dir.runs, label, spec("short"), "short").claim().start().blocks(
            [0.2] * NUM_BLOCKS, LOSSES
        ).end()
    Recording(data_dir.runs, "inductor", spec("short"), "short").claim().start().end()
    found = summarized(data_dir, "fine", "dies", "wrong", "short")
    assert found.geomean_speedup == pytest.approx(2.0)
    assert found.num_workloads == 4
    assert [failure.workload for failure in found.failures] == ["dies", "wrong", "short"]
    reasons = [failure.reason for failure in found.failures]
    assert reasons[0] == "it did not finish: out of memory"
    assert reasons[1].startswith("parity is broken: ")
    assert reasons[2] == "no round is paired with the baseline"


def test_nothing_has_no_mean(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    record(data_dir.runs, "dies", 0.1, RunState.FAILED)
    assert summarized(data_dir, "dies").geomean_speedup is None
    # The cube root of 1 x 2 x 4.
    assert geometric_mean([1.0, 2.0, 4.0]) == pytest.approx(2.0)
