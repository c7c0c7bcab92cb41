"""Environments compared: against numbers worked out by hand, and on many equal ones."""

import json
import random
from collections.abc import Sequence

import pytest

from breakeven.runner.arguments.filters import Filter
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import plan
from breakeven.storage.comparison.results import Comparison, standings
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import (
    backend_rows,
    catalog,
    compute_missing,
    facet_counts,
    matching_rows,
)
from breakeven.storage.library.matrix import matrix
from breakeven.storage.library.summary import summarize
from breakeven.storage.library.trends import trends
from breakeven.storage.profile.explanation import explain
from breakeven.storage.words.environments import environment_lines, environment_sentences
from breakeven.views.comparison.headline import evidence
from breakeven.views.report.content import content
from breakeven.views.shared.inert import inert
from tests.helpers.comparisons import compared, warnings_of
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

SPEC = experiment_spec(
    num_steps=80, block_steps=10, environments=("old=/a/python", "new=/b/python")
)
LOSSES = falling_losses(80)


def record(
    data_dir: DataDir,
    label: str,
    step_seconds: float | Sequence[float],
    *,
    spec: ExperimentSpec = SPEC,
    offset: float = 0.0,
    compile_seconds: float = 0.0,
    torch: str = "2.11.0",
    **workload: object,
) -> None:
    seconds_by_block = [step_seconds] * 8 if isinstance(step_seconds, float) else step_seconds
    losses = falling_losses(len(seconds_by_block) * spec.block_steps)
    recording = Recording(data_dir.runs, label, spec).claim()
    recording.start(environment={"versions": {"torch": torch}}, **workload)
    recording.blocks(seconds_by_block, [loss + offset for loss in losses], compile_seconds)
    recording.evaluation(0.8).end()


def record_in(
    data_dir: DataDir,
    name: str,
    backend: float,
    baseline: float = 0.2,
    offset: float = 0.0,
    own_offset: float = 0.0,
    compile_seconds: float = 0.0,
) -> None:
    """The three runs of an environment; `own_offset` of the backend's losses alone."""
    torch = {"old": "2.11.0", "new": "2.13.0"}[name]
    record(data_dir, f"baseline@{name}", baseline, offset=offset, torch=torch)
    record(data_dir, f"control@{name}", baseline, offset=offset + 1e-5, torch=torch)
    record(
        data_dir,
        f"inductor@{name}",
        backend,
        offset=offset + own_offset,
        torch=torch,
        compile_seconds=compile_seconds,
    )


def record_two(
    data_dir: DataDir, new_backend: float = 0.1, offset: float = 0.0, compile_seconds: float = 22.0
) -> None:
    """The baseline takes 0.2 s a step in both, inductor 0.1 s in the old one."""
    record_in(data_dir, "old", 0.1, compile_seconds=30.0)
    record_in(data_dir, "new", new_backend, own_offset=offset, compile_seconds=compile_seconds)


@pytest.fixture(scope="module")
def faster(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """Under inductor a step takes 0.08 s in the new environment."""
    data_dir = DataDir(tmp_path_factory.mktemp("faster"))
    record_two(data_dir, new_backend=0.08)
    return data_dir


def words_of(comparison: Comparison) -> str:
    return " ".join(environment_sentences(comparison))


def shown(data_dir: DataDir, *options: str) -> int:
    return main(
        ["show", "--judged", "--wide", EXPERIMENT_ID, "--data-folder", str(data_dir.path), *options]
    )


def test_each_environment_has_a_baseline_and_is_compared_with_the_first(faster: DataDir) -> None:
    comparison = compared(faster)
    speedups = {
        result.label: result.speedup and result.speedup.median for result in comparison.results
    }
    assert speedups == {
        "baseline@old": None,
        "control@old": pytest.approx(1),
        "inductor@old": pytest.approx(2),
        "baseline@new": None,
        "control@new": pytest.approx(1),
        "inductor@new": pytest.approx(2.5),
    }
    assert comparison.baseline == "baseline@old"
    new_baseline = comparison.baseline_of("inductor@new")
    assert new_baseline.label == "baseline@new"

    without, under = comparison.across
    assert (without.backend, without.verdict) == (None, "same")
    assert (under.backend, under.environment, under.first_environment) == ("inductor", "new", "old")
    assert under.speedup.median == pytest.approx(1.25)  # 0.1 / 0.08
    assert under.verdict == "faster"
    assert under.parity.verdict == "holds"
    assert (under.compile_seconds, under.first_compile_seconds) == pytest.approx((22, 30))
    assert (under.versions, under.first_versions) == ({"torch": "2.13.0"}, {"torch": "2.11.0"})
    assert words_of(comparison) == (
        "new trains this at 1.25x (1.25 to 1.25) the speed of old under inductor, "
        "1.00x (1.00 to 1.00) without a compiler; "
        "under inductor compiling takes 22.0 s instead of 30.0 s. Nothing is lost with new."
    )
    assert (
        environment_lines(comparison.across)[0] == "new beside old: torch 2.13.0 instead of 2.11.0"
    )
    with Store.in_memory(faster) as store:
        page = content(store, EXPERIMENT_ID).page
    assert page.evidence.endswith(inert(words_of(comparison)))
    assert page.captions[0] == inert("new beside old: torch 2.13.0 instead of 2.11.0")


def test_versions_that_no_run_has_recorded_are_not_called_the_same(data_dir: DataDir) -> None:
    record(data_dir, "baseline@old", 0.2)
    Recording(data_dir.runs, "baseline@new", SPEC)  # It waits in the queue.
    across = compared(data_dir).across
    assert environment_lines(across)[0] == (
        "new beside old: the versions of one of them are not known yet"
    )


def test_equal_numbers_are_written_once(data_dir: DataDir) -> None:
    record_two(data_dir, compile_seconds=30.04)
    comparison = compared(data_dir)
    assert "under inductor compiling takes 30.0 s in both." in words_of(comparison)
    (line,) = [
        line for line in environment_lines(comparison.across) if line.startswith("  inductor")
    ]
    assert "compiling takes 30.0 s in both; " in line and " instead of " not in line


def test_an_inconclusive_version_is_open_and_can_be_timed_further(data_dir: DataDir) -> None:
    """Steps of every other block take twice as long in the old environment."""
    record_two(data_dir)
    record(data_dir, "inductor@old", [0.1, 0.2] * 4)
    comparison = compared(data_dir)
    assert [beside.verdict for beside in comparison.across] == ["same", "unsure"]
    assert comparison.unsure == ["inductor@old", "inductor@new"]
    assert words_of(comparison).endswith("Under inductor it is open whether it is as fast.")
    record(data_dir, "baseline@old", [0.2, 0.4] * 4)
    assert words_of(compared(data_dir)).endswith(" It is open whether it is as fast.")


def test_other_weights_are_said_and_not_compared(data_dir: DataDir) -> None:
    record(data_dir, "baseline@old", 0.2)
    record(data_dir, "control@old", 0.2, offset=1e-5)
    record(data_dir, "baseline@new", 0.2, weights_sha256="cc")
    comparison = compared(data_dir)
    (without,) = comparison.across
    assert without.parity.verdict == "unknown"
    assert words_of(comparison).endswith(
        "Without a compiler it is open whether it learns the same."
    )


def test_an_environment_that_failed_leaves_the_other_its_verdicts(data_dir: DataDir) -> None:
    for label in ("baseline@old", "control@old", "inductor@old"):
        run = Recording(data_dir.runs, label, SPEC).claim()
        run.end(RunState.FAILED, "cannot import torch")
    record_in(data_dir, "new", 0.1, compile_seconds=3.0)
    comparison = compared(data_dir)
    inductor = comparison.result_of("inductor@new")
    assert inductor.speed_verdict == "faster"
    assert inductor.parity.verdict == "holds"
    assert words_of(comparison) == "new cannot be compared with old: no round was timed in both."
    # The other environment has a control.
    (warning,) = [line for line in warnings_of(comparison) if "noise nor parity" in line]
    assert warning.startswith("The control in old recorded no step (failed): ")


@pytest.mark.parametrize("missing", ["old", "new"])
def test_a_missing_environment_leaves_the_other(data_dir: DataDir, missing: str) -> None:
    there = "new" if missing == "old" else "old"
    record_in(data_dir, there, 0.1)
    comparison = compared(data_dir)
    assert comparison.result_of(f"inductor@{there}").speed_verdict == "faster"
    assert comparison.across == ()
    assert "The control's run folder is missing" in "\n".join(warnings_of(comparison))


def test_bridges_start_from_the_baseline_of_the_same_environment(data_dir: DataDir) -> None:
    for label, seconds in {
        "baseline@old": 0.2,
        "inductor@old": 0.1,
        "baseline@new": 0.4,
        "inductor@new": 0.1,
    }.items():
        recording = Recording(data_dir.runs, label, SPEC).claim().start()
        recording.blocks([seconds] * 8, LOSSES)
        recording.profile([{"name": "gemm", "seconds": seconds, "work_class": "matmul"}])
        recording.end()
    with Store.in_memory(data_dir) as store:
        bridges = explain(store, EXPERIMENT_ID).bridges
    assert {label: explanation.baseline.label for label, explanation in bridges.items()} == {
        "inductor@old": "baseline@old",
        "inductor@new": "baseline@new",
    }


@pytest.mark.heavy
def test_the_gate_limits_slowness(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    record_two(data_dir, new_backend=0.15)  # 50 % longer steps
    comparison = compared(data_dir)
    assert [beside.verdict for beside in comparison.across] == ["same", "slower"]
    assert words_of(comparison).endswith("Under inductor it is slower.")
    said = "FAIL inductor@new: slower-than:old>2: speed 0.67x (0.67 to 0.67) of that in old"
    for condition, status in {
        "slower-than:old>2%": 5,
        "slower-than:old>60%": 0,
        "slower-than:new>2%": 2,
    }.items():
        assert shown(data_dir, f"--fail-if={condition}") == status
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("FAIL ")] == [said] * (status == 5)


@pytest.mark.heavy
def test_an_environment_that_learns_something_else_is_not_taken(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    """In it all runs agree with each other. Without a compiler the new one takes 0.2 s, too."""
    record_in(data_dir, "old", 0.19)
    record_in(data_dir, "new", 0.1, offset=0.1)
    comparison = compared(data_dir)
    counted, broken = standings(comparison).counted, standings(comparison).broken
    assert ([result.label for result in counted], [result.label for result in broken]) == (
        ["inductor@old"],
        ["inductor@new"],
    )
    planned = plan(comparison, 1_000_000)
    assert planned.best.label == "inductor@old"
    assert "@new** does not count: [at step 0]" in evidence(comparison, planned)
    with Store.in_memory(data_dir) as store:
        listed = summarize(store, EXPERIMENT_ID)
    assert listed.parity == "broken"
    assert listed.best.label == "inductor@old"
    assert shown(data_dir) == shown(data_dir, "--fail-if=slower,parity") == 3
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL ")]
    assert [line.split(":")[0] for line in lines] == ["FAIL baseline@new", "FAIL inductor@new"]


def test_the_fastest_step_leads_and_not_the_highest_speedup(data_dir: DataDir) -> None:
    record_in(data_dir, "old", 0.1, 0.2)
    record_in(data_dir, "new", 0.4, 1.0)
    leading = plan(compared(data_dir), None).leading
    assert leading.label == "inductor@old"


@pytest.mark.heavy
def test_lists_have_the_environment(faster: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    """Within the old environment inductor is 2x as fast as the baseline, in the new one 2.5x."""
    assert shown(faster, "--json") == 0
    environments = json.loads(capsys.readouterr().out)["environments"]
    assert environments["words"].startswith("new trains this at 1.25x")
    assert [run["backend"] for run in environments["runs"]] == [None, "inductor"]
    assert environments["runs"][1]["speedup"]["median"] == pytest.approx(1.25)
    with Store.in_memory(faster) as store:
        assert compute_missing(store, 100.0) == 0
        frame, rows = catalog(store), backend_rows(store)
        of_new = backend_rows(store, frame, ["new"])
    assert list(rows["torch"]) == ["2.11.0", "2.13.0"]  # of the runs, not of the experiment
    for across, columns in {"environment": ("new", "old"), "torch": ("2.13.0", "2.11.0")}.items():
        table = matrix(rows, across, "speedup")
        assert table.backends == ("inductor",)
        values = {cell.column: cell.value for cell in table.cells}
        assert values == {columns[0]: pytest.approx(2.5), columns[1]: pytest.approx(2)}
    in_both = matrix(rows.assign(torch="2.11.0"), "torch", "speedup")
    assert [cell.num_experiments for cell in in_both.cells] == [1]  # of two rows
    by_model = matrix(rows, "model", "speedup")
    assert set(by_model.backends) == {"inductor@old", "inductor@new"}

    assert facet_counts(frame, Filter())["environment"] == {"old": 1, "new": 1}
    for name, count in {"new": 1, "newest": 0}.items():
        assert len(matching_rows(frame, Filter(facets={"environment": (name,)}))) == count
    assert {trend.backend for trend in trends(rows, "speedup")} == {"inductor@old", "inductor@new"}
    (series,) = trends(of_new, "speedup")
    assert (series.backend, series.points[0].versions["torch"]) == ("inductor@new", "2.13.0")


@pytest.mark.heavy
def test_equal_environments_come_out_the_same(data_dir: DataDir) -> None:
    """Steps of 10 ms scatter by 2 % from block to block, all rounds alike in both."""
    chance = random.Random(1)
    spec = experiment_spec(num_steps=600, block_steps=10, environments=SPEC.environments)
    verdicts = []
    for number in range(2):
        place = DataDir(data_dir.path / str(number))
        for label in ("baseline@old", "control@old", "baseline@new", "control@new"):
            seconds = [0.01 * chance.gauss(1, 0.02) for _ in range(60)]
            record(place, label, seconds, spec=spec, offset=1e-5 if "control" in label else 0.0)
        with Store.in_memory(place) as store:
            (without,) = compare(store, EXPERIMENT_ID).across
        verdicts.append(without.verdict)
    assert verdicts == ["same"] * 2
