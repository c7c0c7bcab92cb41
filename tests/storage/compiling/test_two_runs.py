"""What two runs compiled differently, in real trainings of a model in a file of one's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    TrainingSpec,
)
from breakeven.storage import queries
from breakeven.storage.__main__ import main
from breakeven.storage.compiling.timeline import timeline
from breakeven.storage.compiling.two_runs import (
    CompiledRun,
    compile_difference,
    load_compiled,
    phases,
)
from breakeven.storage.index.store import Store
from tests.faults.trial import train

pytestmark = pytest.mark.heavy

ROWS = ("one", "again", "added", "shapes")
NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, labels=None):
        y = self.inner(x){added}
        y = torch.relu(y)
        torch._dynamo.graph_break()
        return self.outer(y)


def samples():
    return {{name: {{"x": torch.randn(count, 8), "labels": torch.randint(4, (count,))}}
            for name, count in (("train", {count}), ("validation", 8))}}
"""
BREAK = "torch._dynamo.graph_break()"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Runs of a model with one graph break: once more, with another break above it, and with a
    batch of another size at the end."""
    folder = tmp_path_factory.mktemp("compiled")
    data_dir = DataDir(folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CODE_VARIABLE, str(folder))
        for name in ROWS:
            added = f"\n        {BREAK}" if name == "added" else ""

            count = 20 if name == "shapes" else 16
            # All in a file of the same name, as somebody edits one file between two runs.
            file = folder / name / "net.py"
            file.parent.mkdir()
            file.write_text(NET.format(added=added, count=count))
            spec = experiment(file, count)
            arm = spec.arms[1]
            torch._dynamo.utils.clear_compilation_metrics()
            train(data_dir, RunSpec(experiment_id=name, experiment=spec, arm=arm))
    with Store.in_memory(data_dir) as store:
        yield store


def experiment(file: Path, count: int) -> ExperimentSpec:
    last = "dynamic" if count % 8 else "drop"
    return ExperimentSpec(
        name="same",
        task="custom",
        model=ModelSpec(source=f"{file}:Net"),
        data=DataSpec(source=f"{file}:samples", num_train_samples=count, num_eval_samples=8),
        training=TrainingSpec(batch_size=8, losses=("CrossEntropyLoss",), last_batch=last),
        evaluation=EvaluationSpec(when="never"),
        backends=("eager:scope=forward",),
        controls=0,
    )


def loaded(store: Store, *names: str) -> list[CompiledRun]:
    return [load_compiled(store, f"{name}.eager-forward") for name in names]


def rows(store: Store, first: str, other: str, *kinds: str) -> list[tuple[str, str, str]]:
    differences = compile_difference(*loaded(store, first, other))
    return [(row.name, *row.values) for row in differences if not kinds or row.kind in kinds]


def own(differences: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Without the settings that say in which folder the model lies."""
    return [row for row in differences if not row[0].endswith(".source")]


def test_two_equal_runs_differ_in_nothing(store: Store) -> None:
    assert own(rows(store, "one", "again")) == []
    assert rows(store, "one", "one") == []


def test_an_added_graph_break_is_one_new_row(store: Store) -> None:
    (difference,) = rows(store, "one", "added", "graph break")
    name, before, after = difference
    assert name.endswith(f"net.py:12: Call to `{BREAK}`")
    assert (before, after) == ("\N{EN DASH}", "breaks the graph")
    totals = {total[0]: total[1:] for total in rows(store, "one", "added", "graphs")}
    assert totals["graphs"] == ("2", "3")
    assert totals["distinct graph breaks"] == ("1", "2")
    ((_, *values),) = rows(store, "added", "one", "graph break")
    assert values == [after, before]


def test_a_shape_that_changed_is_a_recompilation_with_its_setting(store: Store) -> None:
    recompilations = rows(store, "one", "shapes", "recompilation")
    assert recompilations and all(
        "size mismatch" in name and before == "\N{EN DASH}" for name, before, _ in recompilations
    )
    settings = [name for name, *_ in own(rows(store, "one", "shapes", "setting"))]
    assert settings == ["data.num_train_samples", "training.last_batch"]


def test_phases_are_told_beside_it_whether_or_not_anything_differs(store: Store) -> None:
    times = phases(*loaded(store, "one", "again"))
    assert times["phase"].iloc[0] == "Dynamo"
    assert (times[["run", "other"]].iloc[0] > 0).all()


def test_the_command_says_what_differs(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    runs = ["one.eager-forward", "added.eager-forward"]
    assert main(["diff", *runs, "--data-folder", str(store.data_dir.path)]) == 0
    said = capsys.readouterr().out
    assert "graph break" in said and "net.py:12" in said and "net.py:13" not in said
    assert main(["diff", runs[0], "no.thing", "--data-folder", str(store.data_dir.path)]) == 2


def test_the_timeline_of_a_real_run_has_its_frames_and_the_stages_within_them(store: Store) -> None:
    drawn = timeline(store, "one", "one.eager-forward")
    frames = queries.compile_metrics(store, "one")
    names = {f"{row.function} [{row.compile_id}]" for row in frames.itertuples()}
    assert names >= set(drawn["frame"])
    frame_spans = drawn[drawn["stage"] == "Dynamo"].groupby("frame")[["begin", "seconds"]].first()
    guards = drawn[drawn["stage"] == "Guards"]
    assert len(guards)
    for row in guards.itertuples():
        begin, seconds = frame_spans.loc[row.frame]
        assert begin <= row.begin and row.begin + row.seconds <= begin + seconds + 1e-6
