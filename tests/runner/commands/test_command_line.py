"""`breakeven` as a person types it, with real trainings on the CPU."""

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from breakeven.runner.files import FileLock
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.worker.data.samples import generate_reviews
from breakeven.storage.comparison.comparison import Comparison, compare
from breakeven.storage.index.store import Store

pytestmark = pytest.mark.heavy

FAULTS = Path(__file__).parents[2] / "faults"
NET = (
    "--task=custom", f"--model={FAULTS / 'relu_net.py'}:ReluNet",
    f"--data={FAULTS / 'relu_net.py'}:samples", f"--allow-code={FAULTS}",
    "--loss=CrossEntropyLoss", "--train-samples=640", "--eval-samples=200", "--epochs=2",
    "--batch-size=16", "--learning-rate=0.3", "--block-steps=10", "--cpu-threads=1",
    "--optimizer=SGD",
)  # fmt: skip
"""A network, and an update of its weights, that Inductor compiles soon."""
TINY = (
    "--train-samples=64", "--eval-samples=16", "--sequence-length=16", "--batch-size=16",
    "--block-steps=1", "--cpu-threads=1", "--max-steps=3", "--controls=0", "--profile-steps=0",
    "--dropout=off",
)  # fmt: skip
"""Three steps of a BERT on texts."""


@dataclass(frozen=True)
class Outcome:
    status: int
    output: str
    data_dir: DataDir

    @property
    def comparison(self) -> Comparison:
        store = Store.in_memory(self.data_dir)
        try:
            (experiment_id,) = store.query("SELECT DISTINCT experiment_id FROM runs").iloc[:, 0]
            return compare(store, experiment_id)
        finally:
            store.close()


def command_line(folder: Path, *arguments: str) -> Outcome:
    finished = subprocess.run(
        [sys.executable, "-m", "breakeven", *arguments, f"--data-folder={folder}"],
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONPATH": str(FAULTS)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    return Outcome(finished.returncode, finished.stdout + finished.stderr, DataDir(folder))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One real comparison: a correct backend beside one whose gradients are zeroed."""
    return command_line(
        tmp_path_factory.mktemp("compare"),
        "compare",
        "--backends=inductor,zeroed_gradients",
        *NET,
    )


def test_every_run_of_a_real_comparison_finishes(outcome: Outcome) -> None:
    assert {result.state for result in outcome.comparison.results} == {RunState.FINISHED}, (
        outcome.output
    )


def test_the_losses_fall_and_the_accuracy_is_above_chance(outcome: Outcome) -> None:
    results = {result.label: result for result in outcome.comparison.results}
    for label in ("baseline", "control", "inductor"):
        # 4 labels: a loss of ln 4 = 1.386 and an accuracy of about 0.25 are chance.
        assert results[label].measured.final_loss < 1.2, label
        assert results[label].measured.accuracy > 0.5, label


def test_parity_holds_for_correct_backends_and_breaks_for_dead_gradients(outcome: Outcome) -> None:
    verdicts = {
        result.label: result.parity.verdict
        for result in outcome.comparison.results
        if result.parity is not None
    }
    assert verdicts == {"inductor": "holds", "zeroed_gradients": "broken"}


def test_dead_gradients_are_noticed_within_20_steps(outcome: Outcome) -> None:
    (dead,) = (r for r in outcome.comparison.results if r.label == "zeroed_gradients")
    assert dead.parity is not None and dead.parity.first_step_outside is not None
    assert dead.parity.first_step_outside <= 20


def test_the_exit_status_tells_that_parity_is_broken(outcome: Outcome) -> None:
    assert outcome.status == 3, outcome.output


def test_the_table_names_every_run(outcome: Outcome) -> None:
    table = outcome.output.partition("speedup")[2]
    for label in ("baseline", "control", "inductor", "zeroed_gradients"):
        assert f"\n{label} " in table


def test_the_whole_step_compiles_once(outcome: Outcome) -> None:
    (run,) = outcome.data_dir.runs.glob("*.inductor")
    steps = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [one["step"] for one in steps if one["kind"] == "step" and one["compiled"]] == [0]


def test_compile_caches_are_gone_when_a_run_has_ended(outcome: Outcome) -> None:
    assert not list(outcome.data_dir.runs.glob("*/compile-cache"))


def test_an_unknown_backend_is_refused_before_anything_starts(fresh: Path) -> None:
    outcome = command_line(fresh, "submit", "--backends=indcutor")
    assert outcome.status == 2
    assert "backends = 'indcutor'" in outcome.output and "inductor" in outcome.output
    assert not list(outcome.data_dir.runs.glob("*"))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--optimizer=Adamm", "training.optimizer = 'Adamm'"),
        ("--device=cuda:7", "devices = 'cuda:7'"),
        ("--data=nowhere/texts.csv", "data.source = 'nowhere/texts.csv': no such file"),
        ("--batch-size=5000", "training.batch_size = 5000"),
    ],
)
def test_bad_input_is_refused_with_the_value_at_fault(
    outcome: Outcome, argument: str, message: str
) -> None:
    # The data folder of the comparison already knows what this machine offers.
    refused = command_line(outcome.data_dir.path, "submit", argument)
    assert refused.status == 2
    assert message in refused.output
    assert "Traceback" not in refused.output


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    """A callback of a person's own, which records the number of the step."""
    file = tmp_path / "code" / "hooks.py"
    file.parent.mkdir()
    file.write_text(
        "class Count:\n"
        "    def batch_end(self, state):\n"
        "        state.record('steps so far', float(state.step))\n"
    )
    return file


@pytest.fixture
def reviews_file(tmp_path: Path) -> Path:
    """A CSV of texts and labels under names of its own."""
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("review", "stars"))
        writer.writerows(zip(*generate_reviews(200, seed=5), strict=True))
    return path


@pytest.fixture
def fresh(outcome: Outcome, tmp_path: Path) -> Path:
    """A data folder that knows this machine, where no supervisor lingers."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(outcome.data_dir.capabilities_file, folder)
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--backends=zzzz",), "backends = 'zzzz': is not there; this machine has "),
        (("--backends=eager", "--optimizer-options=wieght_decay=0.1"),
         "training.optimizer_options = {'wieght_decay': 0.1}: do not fit torch.optim.Adam: "),
    ],
)  # fmt: skip
def test_what_only_torch_can_refuse_ends_the_experiment_before_it_trains_with_the_same_sentence(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    refused = command_line(tmp_path, "compare", *TINY, *words)
    assert refused.status == 2 and f"\n{said}" in refused.output, refused.output
    store = Store.in_memory(refused.data_dir)
    assert store.query("SELECT count(*) FROM steps").iloc[0, 0] == 0
    store.close()


def test_own_code_is_refused_unless_its_folder_is_allowed(fresh: Path, hooks: Path) -> None:
    refused = command_line(fresh, "compare", f"--callback={hooks}:Count")
    assert refused.status == 2
    assert f"BREAKEVEN_CODE={hooks.parent}" in refused.output


def test_own_code_that_is_not_there_is_refused(fresh: Path, hooks: Path) -> None:
    missing = hooks.with_name("missing.py")
    refused = command_line(
        fresh, "compare", f"--callback={missing}:Count", f"--allow-code={hooks.parent}"
    )
    assert refused.status == 2
    assert f"there is no file {missing}" in refused.output


def test_folders_cannot_be_allowed_to_a_supervisor_that_is_at_work(
    fresh: Path, hooks: Path
) -> None:
    lock = FileLock(DataDir(fresh).supervisor_lock)
    assert lock.try_acquire()
    with lock:
        refused = command_line(fresh, "supervise", f"--allow-code={hooks.parent}")
    assert refused.status == 2
    assert "keeps to the folders with which it was started" in refused.output


def test_own_code_runs_from_an_allowed_folder_on_texts_of_ones_own_and_a_gate_judges_it(
    fresh: Path, hooks: Path, reviews_file: Path
) -> None:
    ran = command_line(
        fresh, "compare", f"--callback={hooks}:Count", f"--allow-code={hooks.parent}",
        f"--data={reviews_file}", "--text-column=review", "--label-column=stars",
        "--backends=eager", "--fail-if=compile>0.001", *TINY,
    )  # fmt: skip
    runs = list(ran.data_dir.runs.glob("*"))
    assert len(runs) == 2, ran.output
    for run in runs:
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        assert len([event for event in events if event["kind"] == "value"]) == 3, ran.output
    assert ran.status == 5, ran.output
    (line,) = (line for line in ran.output.splitlines() if line.startswith("FAIL "))
    assert line.startswith("FAIL eager: compile>0.001: compile latency ")
    assert line.endswith(" s, limit 0.001 s")


def test_a_gate_that_is_asked_for_nothing_known_is_refused_before_anything_starts(
    fresh: Path,
) -> None:
    refused = command_line(fresh, "compare", "--fail-if=slower,compile", *TINY)
    assert refused.status == 2
    assert "'compile' has no limit; write 'compile>60'" in refused.output
    assert not list(refused.data_dir.runs.glob("*"))


@pytest.mark.slow
def test_a_recorded_run_is_measured_again_and_judged(outcome: Outcome, fresh: Path) -> None:
    shutil.copytree(outcome.data_dir.runs, fresh / "runs")
    recorded = outcome.comparison.experiment_id
    again = command_line(fresh, "replay", f"{recorded}.inductor", f"--allow-code={FAULTS}")
    runs = [run.run_id for run in again.data_dir.run_dirs() if recorded not in run.run_id]
    assert sorted(one.rpartition(".")[2] for one in runs) == ["baseline", "control", "inductor"]
    # Which speeds come out inside is the machine's affair; the losses of equal trainings are equal.
    loss = next(line for line in again.output.splitlines() if line.startswith("Final loss"))
    assert loss.endswith("inside") and len(set(loss.split()[2:4])) == 1
    assert again.status in (0, 6), again.output
