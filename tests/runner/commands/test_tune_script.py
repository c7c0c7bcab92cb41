"""`breakeven tune` with users' scripts, in real processes: from the command to the answer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.commands.cli import main
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.experiments.unconfirmed_searches import UNCONFIRMED
from breakeven.runner.protocol.data_dir import DataDir

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@pytest.fixture(autouse=True)
def code_allowed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command allows the folder of the script for all that follows."""
    monkeypatch.setenv(CODE_VARIABLE, "")


SCRIPT = """
import time
import torch
from torch import nn
import breakeven

class Own(torch.optim.SGD):
    def step(self):
        if not self.param_groups[0]["fused"]:
            time.sleep(0.004)
            return super().step()
        {when_fused}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = Own(model.parameters(), lr=0.1)
model = breakeven.compile(model)
for number in range({steps}):
    points = torch.randn(8, 4)
    loss = nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss, samples=8)
print("compiled", bool(torch._dynamo.utils.counters["frames"]))
"""
"""Its optimizer waits unless it is fused."""


def tuned(
    folder: Path, when_fused: str, capfd: pytest.CaptureFixture[str], steps: int = 3_000
) -> tuple[str, Path]:
    """What the command prints about the script, and the script."""
    script = folder / "project" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT.format(when_fused=when_fused, steps=steps))
    main(
        [
            "tune",
            f"--data-folder={folder / 'data'}",
            "--plan=20000 steps",
            "--budget=90s",
            "--backends=none:optimizer=fused",
            "--block-steps=4",
            "--device=cpu",
            "--profile-steps=0",
            "--cpu-threads=1",
            str(script),
        ]
    )
    return capfd.readouterr().out, script


def test_what_gains_is_confirmed_and_the_script_can_be_changed_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown, script = tuned(tmp_path, "return super().step()", capfd)
    search, confirmation = experiments(DataDir(tmp_path / "data"))
    assert confirmation.spec.confirms == search.experiment_id
    assert re.search(r"^none-fused +faster .* matches$", shown, re.M)
    answer = shown[shown.index("confirmed: train.py") :]
    assert "Use none-fused for 20,000 steps: " in shown and "\nand change by hand:\n" in answer
    subprocess.run(["git", "apply"], input=answer.encode(), cwd=script.parent, check=True)
    ran = subprocess.run([sys.executable, script], text=True, check=True, stdout=subprocess.PIPE)
    assert ran.stdout == "compiled False\n"


def test_what_is_fast_and_wrong_never_wins(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown, _ = tuned(tmp_path, "return None", capfd)
    assert "its losses leave the band of equal trainings" in shown and UNCONFIRMED in shown
    assert "Nothing worked: none-fused cannot be trusted" in shown
    assert len(list(experiments(DataDir(tmp_path / "data")))) == 1


def test_a_script_that_ends_before_the_search_starts_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown, _ = tuned(tmp_path, "return super().step()", capfd, steps=50)
    search, confirmation = experiments(DataDir(tmp_path / "data"))
    assert confirmation.spec.confirms == search.experiment_id
    assert re.search(r"^none-fused +faster ", shown, re.M), shown
