"""One run over two machines: two agents of torchrun on this one, each with a rank of its own."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from breakeven.runner.experiments.queue import ensure_supervisor, find_experiment, submit
from breakeven.runner.processes import end_group
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.meetings import Meetings
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.settings import FILE_NAME
from breakeven.runner.specs.experiment import CheckpointSpec, DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.worker.model.transformers_models import BUILTIN_CONFIGURATIONS
from breakeven.runner.worker.ranks import elastic
from breakeven.runner.worker.ranks.elastic import RankListener
from tests.helpers.loop import SETTINGS, TINY_BERT, experiment, of_kind, run
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.runner.worker.ranks.test_endings import RANK, environment, processes
from tests.runner.worker.ranks.test_same_as_alone import ROUNDING, losses

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]
ALONE = experiment(model=ModelSpec(dropout="off"), backends=(), controls=0)


def over_two(spec: ExperimentSpec = ALONE, **changes: object) -> ExperimentSpec:
    return replace(spec, nodes=2, cpu_threads=1, **changes)  # type: ignore[arg-type]


@pytest.fixture
def other_machine(data_dir: DataDir) -> Iterator[None]:
    """It takes part in whatever is called in the data folder."""
    data_dir.make()
    settings = f'[addresses]\n"{socket.gethostname()}" = "localhost"\n'
    (data_dir.path / FILE_NAME).write_text(settings)
    command = [
        sys.executable,
        "-m",
        "breakeven",
        "queue",
        "start",
        "--join",
        "--data-folder",
        str(data_dir.path),
    ]
    joiner = subprocess.Popen(command, cwd=PROJECT_ROOT, start_new_session=True)
    yield
    joiner.terminate()
    assert joiner.wait(PATIENCE_SECONDS) == 0
    assert not processes(f"ranks.elastic {data_dir.path}"), "nobody stays behind"
    wait_until(lambda: not processes(f"{RANK} {data_dir.path}"))
    end_group(joiner)


def begun(data_dir: DataDir, spec: ExperimentSpec) -> RunDir:
    (folder,) = find_experiment(data_dir, submit(data_dir, spec)).runs
    assert ensure_supervisor(data_dir) is not None
    return folder


def test_what_is_missing_is_said_when_nobody_comes(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic, "COMING_SECONDS", 0.2)
    (folder,) = find_experiment(data_dir, submit(data_dir, over_two())).runs
    listener = RankListener([], 2)
    failure = elastic._with_others(folder, folder.read_spec(), listener)
    listener.close()
    assert failure is not None and failure.status == WorkerExit.FAILED
    assert "1 of 2 machines were there within 0.2 s" in failure.fields["message"]
    assert "breakeven queue start --join" in failure.fields["message"]
    assert list(Meetings(data_dir).all()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("other_machine")
def test_a_training_over_two_machines_is_that_of_one_device(
    data_dir: DataDir, tmp_path: Path
) -> None:
    """Shards on both, a checkpoint that both wrote, and the rank of each in the record."""
    checkpoints = CheckpointSpec(every=3, unit="steps", keep_last=9)
    folder = begun(data_dir, over_two(parallel="fsdp", checkpoints=checkpoints))
    wait_until(lambda: folder.state.is_final)
    assert folder.state is RunState.FINISHED, folder.log_tail()
    events, _ = read_events(folder.events_file)
    with mock.patch.dict(BUILTIN_CONFIGURATIONS, {"builtin:bert-tiny": (TINY_BERT, SETTINGS)}):
        alone = run(ALONE, tmp_path / "whole")
    assert losses(events) == pytest.approx(losses(alone), rel=ROUNDING)
    assert {row["rank"] for row in of_kind(events, "rank_block")} == {0, 1}
    (first, *_) = of_kind(events, "checkpoint")
    shards = {file.name for file in (folder.path / first["file"]).glob("*.distcp")}
    assert shards == {"__0_0.distcp", "__1_0.distcp"}
    assert list(Meetings(data_dir).all()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("other_machine")
def test_a_rank_that_dies_on_the_other_machine_ends_the_run_with_its_reason(
    data_dir: DataDir,
) -> None:
    data = DataSpec(num_train_samples=40_000, num_eval_samples=4, sequence_length=8)
    folder = begun(data_dir, over_two(data=data, block_steps=500))
    wait_until(lambda: bool(of_kind(read_events(folder.events_file)[0], "block")))
    ranks = sorted(processes(f"{RANK} {folder.path}"), key=lambda pid: environment(pid)["RANK"])
    assert [environment(pid)["RANK"] for pid in ranks] == ["0", "1"]
    assert [environment(pid)["LOCAL_RANK"] for pid in ranks] == ["0", "0"]
    os.kill(ranks[1], signal.SIGKILL)
    wait_until(lambda: folder.state.is_final)
    assert folder.state is RunState.FAILED
    (error,) = of_kind(read_events(folder.events_file)[0], "error")
    assert "rank 1: ended by signal SIGKILL" in error["message"]
    wait_until(lambda: not processes(f"{RANK} {folder.path}"))
