"""Whatever one run folder holds, all others are listed, run and shown, and the bad one is named."""

import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from itertools import cycle, product
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from breakeven.runner.commands.cli import main
from breakeven.runner.experiments.queue import find_experiment
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers.breakages import FILES, HOSTILE_NAMES, KINDS, break_file, change_file
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.runner.supervision.supervised import impatience as impatience

pytestmark = pytest.mark.heavy

GOOD, WAITING = "20261121-093010-123456-7f3a", "20261121-235959-123456-7f3a"
PATIENCE = int(3 * PATIENCE_SECONDS)
SECRET = "what lies outside"
ENDED = experiment_spec(num_steps=20, controls=0)
QUEUED = experiment_spec(num_steps=10, controls=0)


@pytest.fixture(autouse=True)
def no_endless_waiting() -> Iterator[None]:
    """A test that waits for something in a broken folder must end, and say where it waited."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise AssertionError("waited for something in a broken folder")

    before = signal.signal(signal.SIGALRM, give_up)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return fresh(tmp_path)


def fresh(parent: Path) -> DataDir:
    """A good experiment that ended, one that waits in the queue, and names that nobody expects."""
    shutil.rmtree(parent / "data", ignore_errors=True)
    runs = parent / "data" / "runs"
    record_experiment(runs, experiment_spec(num_steps=40), GOOD)
    queue(runs, WAITING, experiment_spec(num_steps=10, backends=(), controls=0))
    (parent / "outside").write_text(SECRET)
    for name in HOSTILE_NAMES:
        (runs / name.decode(errors="surrogateescape")).mkdir()
    (runs / "loop").symlink_to("loop")
    return DataDir(parent / "data")


def queue(runs: Path, experiment_id: str, spec: ExperimentSpec) -> None:
    for arm in spec.arms:
        run = RunSpec(experiment_id=experiment_id, experiment=spec, arm=arm)
        RunDir(runs / run.run_id).write_spec(run)


def ended(data_dir: DataDir, experiment_id: str) -> None:
    """A copy of an experiment that was recorded once."""
    recorded = data_dir.path.parent / "recorded"
    if not recorded.exists():
        record_experiment(recorded, ENDED)
    for label in ("baseline", "inductor"):
        run = data_dir.run_dir(f"{experiment_id}.{label}")
        shutil.copytree(recorded / f"{EXPERIMENT_ID}.{label}", run.path)
        spec = run.spec_file.read_text()
        assert spec.count(EXPERIMENT_ID) == 1
        run.spec_file.write_text(spec.replace(EXPERIMENT_ID, experiment_id))
        run.checkpoints.mkdir(parents=True)
        run.output_file.write_text("hello\n")


def numbered(number: int) -> str:
    return f"20261121-1{number:05d}-123456-7f3a"


def check_status(data_dir: DataDir, ids: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`status` lists all experiments and names the folders that are none."""
    capsys.readouterr()
    assert main(["list", "--runs", "--all", "--data-folder", str(data_dir.path)]) == 0
    said = capsys.readouterr().out
    assert said.replace("\n", "").isprintable()
    for experiment_id in {GOOD, WAITING} | ids:
        assert f"{experiment_id}  test\n" in said
    for name in ("\\udcff\\udcfe.baseline", "a\\nb.baseline", "loop", "\\x1b[31mred"):
        assert f"    {name}: " in said


def check_store(data_dir: DataDir, broken: set[str], compared: set[str]) -> None:
    """The database lists all runs but those it names as unreadable, and compares the good ones."""
    with Store.in_memory(data_dir) as store:
        unreadable = {Path(folder).name for folder in queries.unreadable(store)["folder"]}
        assert {"loop", "-rf", "a\\nb.baseline"} <= unreadable
        runs = store.query("SELECT run_id, experiment_id FROM runs")
        intact = {run.run_id for run in data_dir.run_dirs() if run.run_id.isascii()} - broken
        intact -= {"a\nb.baseline", "[1].baseline"}
        assert {name for name in intact if "." in name} <= set(runs["run_id"])
        assert broken <= set(runs["run_id"]) | unreadable
        listed = queries.list_experiments(store).set_index("experiment_id")
        assert listed.loc[GOOD, "state"] == "finished"
        (inductor,) = (
            result for result in compare(store, GOOD).results if result.label == "inductor"
        )
        assert inductor.speedup is not None
        for experiment_id in compared & set(runs["experiment_id"]):
            queries.list_runs(store, experiment_id)
            compare(store, experiment_id)


def check_supervisor(data_dir: DataDir, queued: set[str], broken: set[str]) -> None:
    """All runs that wait are run but the broken ones, whose end is recorded all the same, and those
    that a broken baseline leaves with nothing to be compared with."""
    assert supervise(data_dir, FAKE_WORKER)
    for experiment_id in {WAITING} | queued:
        for run in find_experiment(data_dir, experiment_id).runs:
            stands = run.status
            if run.run_id in broken:
                assert stands.state.is_final, stands
            elif stands.state is RunState.CANCELLED:
                assert f"{experiment_id}.baseline" in broken, stands
                assert str(stands.reason).startswith("no baseline to compare with: "), stands
            else:
                assert stands.state is RunState.FINISHED, stands
    assert (data_dir.path.parent / "outside").read_text() == SECRET


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_runs_that_ended_may_be_broken_in_every_way(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], every: int
) -> None:
    """By all pairs of a file and a way to break it, or by every seventh, in which all of both are;
    `test_one_answer.py` lists folders of nearly all pairs."""
    signal.alarm(PATIENCE)
    ids, broken = set(), set()
    pairs = list(product(FILES, KINDS))[::every]
    assert {name for name, _ in pairs} == set(FILES) and {kind for _, kind in pairs} == set(KINDS)
    for number, (name, kind) in enumerate(pairs):
        ids.add(experiment_id := numbered(number))
        ended(data_dir, experiment_id)
        # Both of them by turns: the baseline is the one that says the most.
        run = data_dir.run_dir(f"{experiment_id}.{('baseline', 'inductor')[number % 2]}")
        break_file(run.path, name, kind, data_dir.path.parent / "outside")
        broken.add(run.run_id)
    check_status(data_dir, ids, capsys)
    check_store(data_dir, broken, {numbered(number) for number in range(0, len(ids), 8)})
    assert (data_dir.path.parent / "outside").read_text() == SECRET


def wait_broken(data_dir: DataDir, breakages: Iterable[tuple[str, str]]) -> None:
    ids, broken = set(), set()
    for number, (name, kind) in enumerate(breakages):
        ids.add(experiment_id := numbered(number))
        queue(data_dir.runs, experiment_id, QUEUED)
        run = data_dir.run_dir(f"{experiment_id}.{('inductor', 'baseline')[number % 2]}")
        break_file(run.path, name, kind, data_dir.path.parent / "outside")
        broken.add(run.run_id)
    check_supervisor(data_dir, ids, broken)


def test_runs_that_wait_may_be_broken(data_dir: DataDir) -> None:
    signal.alarm(PATIENCE)
    # Every third kind, at one file after the other.
    wait_broken(data_dir, zip(cycle(FILES), list(KINDS)[::3], strict=False))


@pytest.mark.slow
def test_runs_that_wait_may_be_broken_in_every_way(data_dir: DataDir) -> None:
    wait_broken(data_dir, product(FILES, KINDS))


NUMBERS = st.one_of(
    st.integers(), st.sampled_from([2**53, 2**63 - 1, 2**63, -(2**63), 10**400]), st.floats()
)
TEXTS = st.one_of(
    st.text(max_size=5), st.sampled_from(["\ud800", "\0", "NaN", "1e999", "x" * 9999])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
CHANGES = st.tuples(
    st.sampled_from(["spec.json", "claim.json", "exit.json", "events.jsonl"]),
    st.lists(st.integers(0, 30), max_size=4),
    VALUES,
)


@settings(
    max_examples=int(os.environ.get("BREAKEVEN_FUZZ_EXAMPLES", "1")),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # shrinking would take minutes
    derandomize="BREAKEVEN_FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes=st.lists(CHANGES, min_size=12, max_size=16))
def test_any_value_may_stand_anywhere_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[tuple[str, list[int], Any]]
) -> None:
    signal.alarm(PATIENCE)
    data_dir = fresh(tmp_path)
    broken, compared = set(), set()
    for number, (name, keys, value) in enumerate(changes):
        ended(data_dir, numbered(number))
        run = data_dir.run_dir(f"{numbered(number)}.inductor")
        change_file(run.path / name, keys, value)
        broken.add(run.run_id)
        if name != "spec.json":
            compared.add(numbered(number))
    check_status(data_dir, {numbered(number) for number in range(len(changes))}, capsys)
    check_store(data_dir, broken, compared)
