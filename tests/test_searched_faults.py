"""A search never recommends a backend that is fast and wrong, in real trainings on the CPU."""

from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.commands.cli import main
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.protocol.data_dir import DataDir
from tests.faults.late_faults import BEGINS
from tests.helpers.loop import FAULTS

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

WRONG = (
    "zeroed_gradients",
    "scaled_gradients",
    "dead_layer",
    "stale_batch",
    "skipped_update",
    "wrong_epsilon",
    "late_negated_gradients",
    "late_stuck_batch",
    "permuted_logits",
    "one_wrong_sample",
    "relu_accuracy_error_TESTING_ONLY",
    f"{FAULTS / 'compiler_faults.py'}:wrong_relu",
)
"""Wrong gradients, weights, batches, functions and answers; some of them begin later."""


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CODE_VARIABLE, "")
    monkeypatch.setenv("PYTHONPATH", f"{FAULTS.parents[1]}:{FAULTS}")
    monkeypatch.setenv(BEGINS, "30")


def searched(folder: Path, capfd: pytest.CaptureFixture[str], *backends: str) -> str:
    """The command's output for a network on which every backend saves 4 ms per step."""
    network = FAULTS / "relu_net.py"
    main(
        [
            "tune",
            f"--data-folder={folder / 'data'}",
            "--task=custom",
            "--plan=20000 steps",
            f"--model={network}:Waiting",
            f"--data={network}:noisy_samples",
            "--budget=120s",
            f"--allow-code={FAULTS}",
            f"--backends={','.join(backends)}",
            "--optimizer=SGD",
            "--batch-size=16",
            "--learning-rate=0.05",
            "--device=cpu",
            "--cpu-threads=1",
            "--profile-steps=0",
        ]
    )
    return capfd.readouterr().out


@pytest.mark.parametrize("backend", WRONG)
def test_what_is_fast_and_wrong_is_never_recommended(
    backend: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = searched(tmp_path, capfd, backend)
    answers = ("Do not compile for 20,000 steps: ", "Nothing worked: ")
    assert any(answer in shown for answer in answers) and "\nUse " not in shown, shown


def test_what_is_fast_and_right_is_recommended_beside_what_is_wrong(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = searched(tmp_path, capfd, "eager", "zeroed_gradients")
    assert "Use eager for 20,000 steps: " in shown, shown
    assert len([*experiments(DataDir(tmp_path / "data"))]) == 2
