"""A fault planted in a stage of torch's compiler is found on the rung of that stage, in real
trainings on the CPU. Correct rungs are trained once; for each fault its own rung is trained again,
and mostly the one above."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch._inductor.config

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.ladder import ladder_on
from breakeven.storage.__main__ import main
from breakeven.storage.compiling.ladder import Ladder, find_ladder
from breakeven.storage.index.store import Store
from tests.faults.stage_faults import FAULTS
from tests.faults.trial import TRIAL, WORKLOADS, train_run
from tests.helpers.journals import GONE

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

RUNGS = list(FAULTS)
BELOW = ("baseline", "control")
WORKLOAD = WORKLOADS["relu net"]
SPEC = replace(
    WORKLOAD,
    backends=ladder_on("cpu"),
    training=replace(WORKLOAD.training, max_steps=48),
    block_steps=4,
)
SOON_TRAINED_ABOVE = ("eager", "aot_eager", "inductor")
"""Rungs whose neighbour above shows the fault within seconds, too."""
HIGHEST_CLEAN = "inductor"
"""Choosing among kernels would take minutes."""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """The ladder of torch's unchanged compilers."""
    folder = DataDir(tmp_path_factory.mktemp("clean"))
    for label in (*BELOW, *RUNGS[: RUNGS.index(HIGHEST_CLEAN) + 1]):
        train(folder, label)
    return folder


def train(folder: DataDir, label: str) -> None:
    """One run, ended as its supervisor would record it."""
    run = folder.run_dir(f"{TRIAL}.{label}")
    shutil.rmtree(run.path, ignore_errors=True)
    state, reason = RunState.FINISHED, "all steps done"
    # A cached result of an earlier test would hide the fault.
    with torch._inductor.config.patch(force_disable_caches=True):
        try:
            train_run(folder, SPEC, label)
        except Exception as error:
            state, reason = RunState.FAILED, f"{type(error).__name__}: {error}"
    run.write_claim(Claim.by(GONE))
    run.write_exit(Exit.now(state, reason, int(state is RunState.FAILED)))


def ladder_of(folder: DataDir) -> Ladder:
    with Store.in_memory(folder) as store:
        ladder = find_ladder(store, TRIAL)
    assert ladder is not None
    return ladder


def test_a_clean_ladder_neither_fails_nor_computes_wrongly(clean: DataDir) -> None:
    ladder = ladder_of(clean)
    assert [rung.result.state for rung in ladder.rungs] == ["finished"] * 4
    assert ladder.first("fails") is None and ladder.first("differs") is None


@pytest.mark.parametrize("rung", RUNGS)
def test_a_planted_fault_is_found_on_the_rung_of_its_stage(
    clean: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], rung: str
) -> None:
    kind, stage, planted = FAULTS[rung]
    folder = DataDir(tmp_path)
    shutil.copytree(clean.runs, folder.runs)
    with planted():
        train(folder, rung)
        if rung in SOON_TRAINED_ABOVE:
            train(folder, RUNGS[RUNGS.index(rung) + 1])
    ladder = ladder_of(folder)
    # With so small a network Dynamo's guards also cost time, which is no fault.
    named = ladder.costliest if kind == "loses" else ladder.first(kind)
    assert named is not None and named.result.label == rung
    assert main(["explain", "--ladder", TRIAL, "--data-folder", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    words = {"fails": "stage that fails", "differs": "with wrong numbers", "loses": "tage that"}
    assert any(words[kind] in line and f"{rung} ({stage})" in line for line in said.splitlines())
