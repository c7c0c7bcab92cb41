"""What backends set in a script: the processes of its data loaders, which work in the run's turns
only and whose waiting the journal has, and the form of its optimizer."""

import time
from pathlib import Path

import pytest

from breakeven.runner.errors import WorkloadError
from breakeven.runner.protocol.turns import Turn
from tests.helpers.loop import TurnsOnPaper
from tests.runner.worker.script.scripts import NET, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

LOADING = (
    NET
    + """
import os, time
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Slow(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, place):
        time.sleep(0.02)
        with open("loaded.txt", "a") as file:
            file.write(f"{os.getpid()} {time.monotonic()}\\n")
        return torch.randn(4, generator=torch.Generator().manual_seed(place))

class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.randn(8, 4))

model = breakeven.compile(model)
loader = DataLoader(Slow(), batch_size=1)
for number, points in enumerate(loader):
    if number == 12:
        break
    breakeven.step(made(points))
"""
)


class SlowTurns(TurnsOnPaper):
    """Half a second passes before each turn, as if other runs trained."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[float, float]] = []

    def wait(self) -> Turn | None:
        since = time.monotonic()
        time.sleep(0.5)
        turn = super().wait()
        self.waits.append((since, time.monotonic()))
        return turn


def loaded(folder: Path, label: str = "baseline") -> list[tuple[int, float]]:
    """The process and the time of each loaded sample."""
    (file,) = folder.rglob(f"*{label}/**/loaded.txt")
    rows = map(str.split, file.read_text().splitlines())
    return [(int(process), float(at)) for process, at in rows]


def test_processes_of_a_data_loader_pause_while_other_runs_have_their_turns(tmp_path: Path) -> None:
    turns = SlowTurns()
    # Filling the queue takes 8 * 2 * 20 ms / 2 processes = 160 ms.
    code = LOADING.replace("batch_size=1)", "batch_size=1, num_workers=2, prefetch_factor=8)")
    run(tmp_path, code, turns=turns)
    samples = loaded(tmp_path)
    assert len({process for process, _ in samples}) == 2
    assert len(turns.waits) >= 3
    for since, until in turns.waits:
        # A sample that was on its way when the turn ended may still be written.
        assert [at for _, at in samples if since + 0.05 < at < until] == []


def test_the_journal_has_the_time_that_steps_wait_for_their_data(tmp_path: Path) -> None:
    blocks = run(tmp_path, LOADING).of_kind("block")
    # The first batch is loaded before the first step begins.
    assert [block["loading_seconds"] >= 4 * 0.02 for block in blocks[1:]] == [True, True]
    assert all(block["loading_seconds"] < block["seconds"] for block in blocks)


@pytest.mark.parametrize(
    "evaluating",
    [
        pytest.param(
            "[None for points in loading]; breakeven.evaluated('validation', loss=0.5)",
            marks=pytest.mark.slow,
        ),
        "model.eval(); [model(points) for points in loading]; model.train()",
    ],
    ids=["reported", "by the model's mode"],
)
def test_loading_for_an_evaluation_is_no_waiting_of_a_step(tmp_path: Path, evaluating: str) -> None:
    evaluation = f"""
    if number % 4 == 3:
        loading = DataLoader(Slow(), batch_size=1)
        {evaluating}
"""
    blocks = run(tmp_path, LOADING + evaluation).of_kind("block")
    assert len(blocks) == 3
    # An evaluation loads for 60 * 20 ms = 1.2 s.
    assert all(block["loading_seconds"] < 1 for block in blocks)


def test_a_backend_gives_data_loaders_their_processes(tmp_path: Path) -> None:
    ran = run(tmp_path, LOADING, "none-loader_workers_3", backends=("none:loader_workers=3",))
    assert len({process for process, _ in loaded(tmp_path, "loader_workers_3")}) == 3
    assert ran.losses == run(tmp_path, LOADING).losses


def test_a_stream_is_not_loaded_by_several_processes(tmp_path: Path) -> None:
    code = LOADING.replace("Slow(), batch_size=1", "Stream(), batch_size=1")
    with pytest.raises(WorkloadError, match=r"IterableDataset \(Stream\)"):
        run(tmp_path, code, "none-loader_workers_2", backends=("none:loader_workers=2",))


SGD = "torch.optim.SGD(model.parameters(), lr=0.1"
FUSED_OR_NOT = (
    NET
    + """
model = breakeven.compile(model)
for number in range(8):
    breakeven.record("fused", bool(optimizer.param_groups[0]["fused"]))
    breakeven.step(made(torch.randn(8, 4)))
"""
)


def test_a_backend_gives_the_scripts_optimizer_its_form(tmp_path: Path) -> None:
    def fused(label: str) -> float:
        changes = {"backends": ("none:optimizer=fused",)}
        return run(tmp_path, FUSED_OR_NOT, label, **changes).of_kind("value")[0]["value"]

    assert (fused("baseline"), fused("none-fused")) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (f"{SGD}, foreach=True)", "itself chooses the implementation"),
        ("torch.optim.Rprop(model.parameters())", "Rprop has no 'fused' implementation"),
    ],
)
def test_a_form_that_cannot_be_measured_is_refused(tmp_path: Path, made: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        run(
            tmp_path,
            FUSED_OR_NOT.replace(f"{SGD})", made),
            "none-fused",
            backends=("none:optimizer=fused",),
        )


@pytest.mark.parametrize(
    ("made", "fixed"),
    [
        (f"{SGD})", []),
        (f"{SGD}, fused=True)", ["optimizer"]),
        ("torch.optim.Rprop(model.parameters())", ["optimizer"]),
    ],
)
def test_a_run_without_a_form_says_which_settings_no_candidate_can_change(
    tmp_path: Path, made: str, fixed: list[str]
) -> None:
    code = FUSED_OR_NOT.replace(f"{SGD})", made).replace('"fused", bool', '"x", 1 or bool')
    assert run(tmp_path, code).workload["fixed_settings"] == fixed
