"""Backups taken while a real training writes: what is restored from one goes on."""

from pathlib import Path

import pytest

from runner.backup.making import back_up, restore
from runner.backup.snapshots import verify
from runner.commands.progress import RunProgress
from runner.folders.data_dir import DataDir
from runner.folders.queue import ensure_supervisor, find_experiment, submit
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.specs.experiment import (
    CheckpointSpec,
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    TrainingSpec,
)
from runner.supervision import supervisor
from storage.index.store import Store
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.heavy

NUM_STEPS = 200
SPEC = ExperimentSpec(
    name="trial", backends=(), controls=0, block_steps=5, cpu_threads=1, profile_steps=0,
    data=DataSpec(num_train_samples=104, num_eval_samples=8, sequence_length=16),
    training=TrainingSpec(batch_size=4, max_steps=NUM_STEPS, learning_rate=1e-3, seed=3),
    evaluation=EvaluationSpec(when="end"), checkpoints=CheckpointSpec(every=3, unit="steps"),
)  # fmt: skip


def losses(data_dir: DataDir) -> list[tuple[int, float]]:
    with Store.in_memory(data_dir) as store:
        frame = store.query("SELECT step, loss FROM steps ORDER BY step")
    return list(frame.itertuples(index=False, name=None))


@pytest.mark.slow
def test_what_is_restored_goes_on_and_computes_what_the_original_did(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = find_experiment(data_dir, submit(data_dir, SPEC))
    (run,) = experiment.runs
    ensure_supervisor(data_dir)
    wait_until(lambda: RunProgress(run, SPEC).update() or run.has_checkpoint)
    taken = []
    while run.state is RunState.RUNNING:
        taken.append(back_up(data_dir, tmp_path / "backups").snapshot)
    assert len(taken) >= 3 and run.state is RunState.FINISHED
    assert not [wrong for one in taken for wrong in verify(one, set())]
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    again = DataDir(tmp_path / "again")
    restore(taken[len(taken) // 2], again)
    copy = RunDir(again.runs / run.run_id)
    assert copy.state is RunState.LOST and 0 < len(losses(again)) < NUM_STEPS
    assert supervisor.supervise(again)
    assert copy.state is RunState.FINISHED and copy.attempt == 2
    assert [step for step, _ in losses(again)] == list(range(NUM_STEPS))
    assert losses(again) == losses(data_dir)
