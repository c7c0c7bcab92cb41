"""The backup recipe in docs/operating.md, taken while a real training writes, restores a training
that goes on to the same losses."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.experiments.queue import ensure_supervisor, find_experiment, submit
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.run_progress import RunProgress
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import CheckpointSpec
from breakeven.runner.supervision import supervisor
from breakeven.storage.index.store import Store
from tests.helpers.loop import FAULTS
from tests.helpers.waiting import wait_until
from tests.runner.commands.test_resume import experiment
from tests.runner.supervision.supervised import impatience as impatience

pytestmark = pytest.mark.heavy
NUM_STEPS = 800
SPEC = experiment(checkpoints=CheckpointSpec(every=8, unit="steps"))
SPEC = replace(SPEC, training=replace(SPEC.training, max_steps=NUM_STEPS))
VANISHED = 24
"""rsync's exit status if files were removed while it copied."""


def recipe(data: Path, backup: Path) -> list[str]:
    text = (PROJECT_ROOT / "docs/operating.md").read_text()
    block = re.search(r"<!-- recipe: .*? -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    lines = block[1].replace("/backup/breakeven", str(backup)).replace(" data/", f" {data}/")
    return lines.splitlines()


def losses(data_dir: DataDir) -> list[tuple[int, float]]:
    with Store.in_memory(data_dir) as store:
        frame = store.query("SELECT step, loss FROM steps ORDER BY step")
    return list(frame.itertuples(index=False, name=None))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_a_training_restored_from_the_recipe_goes_on_and_computes_what_the_original_did(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODE_VARIABLE, str(FAULTS))
    (run,) = find_experiment(data_dir, submit(data_dir, SPEC)).runs
    process = ensure_supervisor(data_dir)
    assert process is not None
    wait_until(lambda: RunProgress(run, SPEC).update() or run.has_checkpoint)
    copies: list[DataDir] = []
    while run.state is RunState.RUNNING:
        copies.append(DataDir(tmp_path / f"copy-{len(copies)}"))
        for line in recipe(data_dir.path, copies[-1].path):
            assert subprocess.run(line, shell=True).returncode in (0, VANISHED)
    assert len(copies) >= 3 and run.state is RunState.FINISHED
    # The last copy may have been taken after the end.
    again = copies[len(copies) // 2]
    copy = RunDir(again.runs / run.run_id)
    # The copy names the original's processes, of which the supervisor would wait for more to do.
    process.kill()
    process.wait()
    wait_until(lambda: copy.state is RunState.LOST)
    assert 0 < len(losses(again)) < NUM_STEPS
    assert supervisor.supervise(again)
    assert copy.state is RunState.FINISHED and copy.attempt == 2
    assert losses(again) == losses(data_dir)
