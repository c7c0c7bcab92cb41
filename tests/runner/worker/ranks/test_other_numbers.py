"""The command has a training go on on another number of devices: the same samples, losses but for
rounding. Without the command: `test_same_as_alone.py`."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.commands.cli import main
from breakeven.runner.experiments.queue import ensure_supervisor, find_experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import CheckpointSpec, EvaluationSpec, ModelSpec
from breakeven.runner.worker.model.transformers_models import BUILTIN_CONFIGURATIONS
from tests.helpers.loop import SETTINGS, TINY_BERT, experiment, of_kind, run
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.runner.worker.ranks.test_same_as_alone import ROUNDING, losses

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]
SAVED = experiment(
    model=ModelSpec(dropout="off"), checkpoints=CheckpointSpec(every=3, unit="steps", keep_last=9)
)
KILLER = """
import os, signal
from pathlib import Path

class Killer:
    '''Kills one rank of two, once.'''

    def batch_end(self, state):
        if state.step == 8 and os.environ.get("RANK") == "1":
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_command_has_a_run_of_two_ranks_go_on_on_one_device(
    data_dir: DataDir,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank is killed in step 9; what goes on at step 6 is one process, and the losses are those
    of a training that was never interrupted."""
    (tmp_path / "killer.py").write_text(KILLER)
    monkeypatch.setenv(CODE_VARIABLE, str(tmp_path))
    spec = replace(
        SAVED,
        devices=("cpu", "cpu"),
        parallel="fsdp",
        backends=(),
        controls=0,
        cpu_threads=1,
        evaluation=EvaluationSpec(when="end"),
        callbacks=(f"{tmp_path / 'killer.py'}:Killer",),
    )
    experiment_id = submit(data_dir, spec)
    (folder,) = find_experiment(data_dir, experiment_id).runs
    supervisor = ensure_supervisor(data_dir)
    assert supervisor is not None
    wait_until(lambda: folder.state is RunState.FAILED)
    go_on = ["resume", experiment_id, "--device", "cpu", "--data-folder", str(data_dir.path)]
    supervisor.wait(PATIENCE_SECONDS)
    assert main([*go_on, "--allow-code", str(tmp_path)]) == 0
    assert "baseline resumes from step 6 on cpu" in capsys.readouterr().out
    wait_until(lambda: folder.state.is_final)
    assert folder.state is RunState.FINISHED, folder.log_tail()
    events, _ = read_events(folder.events_file)
    (resumed,) = of_kind(events, "resumed")
    assert (resumed["num_devices_before"], resumed["num_devices"]) == (2, 1)
    assert {row["seq"] > resumed["seq"] for row in of_kind(events, "rank_block")} == {False}
    with mock.patch.dict(BUILTIN_CONFIGURATIONS, {"builtin:bert-tiny": (TINY_BERT, SETTINGS)}):
        uninterrupted = run(replace(SAVED, backends=(), controls=0), tmp_path / "whole")
    assert losses(events) == pytest.approx(losses(uninterrupted), rel=ROUNDING)
    assert (folder.attempts / "1" / "exit.json").exists()
