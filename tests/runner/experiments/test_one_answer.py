"""Which run folders can be read is one question: all who list runs or count damage agree."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.commands.cli import main
from breakeven.runner.doctor.data_folder_checks import check_run_folders
from breakeven.runner.experiments.queue import damages, listed
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import RunSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.views.shared import resources
from tests.helpers.breakages import FILES, HOSTILE_NAMES, KINDS, break_file
from tests.helpers.journals import experiment_spec, record_experiment
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import close_store, opened, text

SPEC = experiment_spec(num_steps=20, controls=0)
SOME_FILES = (*FILES[:5], "labels.json")


def numbered(number: int) -> str:
    return f"20261121-1{number:05d}-123456-7f3a"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """Every file broken in every way, in one run of an experiment or in both; folders of odd names,
    missing ones, links, another experiment's specification, a journal of a version to come."""
    place = tmp_path_factory.mktemp("damaged")
    data_dir = DataDir(place / "data")
    template = place / "template"
    record_experiment(template, SPEC, numbered(0))
    (outside := place / "outside").write_text("what lies outside")
    pairs = [(name, kind) for name in SOME_FILES for kind in KINDS]
    for number, (name, kind) in enumerate(pairs):
        made = make(data_dir, template, number)
        broken = made if number % 3 == 0 else made[number % 2 :][:1]
        for folder in broken:
            break_file(folder, name, kind, outside)
    for name in HOSTILE_NAMES:
        (data_dir.runs / name.decode(errors="surrogateescape")).mkdir()
    (data_dir.runs / "loop").symlink_to("loop")
    (data_dir.runs / "loop.").mkdir()
    (data_dir.runs / "gone").symlink_to("nowhere")
    intact = make(data_dir, template, len(pairs))
    shutil.rmtree(make(data_dir, template, len(pairs) + 1)[1])
    (intact[0].parent / "linked").symlink_to(intact[0])
    newer = make(data_dir, template, len(pairs) + 2)[0] / "events.jsonl"
    newer.write_text('{"v":99,"seq":0,"kind":"phase"}\n')
    other = make(data_dir, template, len(pairs) + 3)[0]
    (other / "spec.json").write_text((other / "spec.json").read_text().replace("test", "other"))
    return data_dir


def make(data_dir: DataDir, template: Path, number: int) -> list[Path]:
    """A copy of an experiment that ended, under an id of its own; its folders."""
    made = []
    for arm in SPEC.arms:
        run = RunSpec(experiment_id=numbered(number), experiment=SPEC, arm=arm)
        folder = data_dir.runs / run.run_id
        shutil.copytree(template / f"{numbered(0)}.{arm.label}", folder)
        (folder / "spec.json").write_text(run.to_json())
        made.append(folder)
    return made


@pytest.fixture
def served(damaged: DataDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DataDir]:
    monkeypatch.setenv("BREAKEVEN_DATA", str(damaged.path))
    monkeypatch.setattr(resources, "EXAMPLES", tmp_path / "examples")
    monkeypatch.setattr(resources, "ensure_supervisor", lambda data_dir: None)
    keep(damaged, MACHINE)
    yield damaged
    close_store(damaged)


def status(data_dir: DataDir, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert main(["list", "--runs", "--data-folder", str(data_dir.path), *options]) == 0
    return capsys.readouterr().out


def test_every_count_of_damaged_folders_is_the_same(
    served: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {name for name, _ in damages(served)}
    assert len(names) > 80
    with Store.in_memory(served) as store:
        assert len(queries.unreadable(store)) == len(names)
        known = {name for (name,) in store.rows("SELECT run_id FROM runs")}
    assert known & names == with_broken_labels(served)
    page = opened("experiments")
    assert f"{len(names)} run folders could not be read" in said(page)
    assert f"{len(names)} cannot be read: " in next(iter(check_run_folders(served))).evidence
    printed = status(served, capsys)
    assert f"{len(names)} run folders cannot be read:\n" in printed
    assert len(printed.partition("cannot be read:\n")[2].splitlines()) == 11
    printed = status(served, capsys, "--all")
    assert len(printed.partition("cannot be read:\n")[2].splitlines()) == len(names)


def with_broken_labels(data_dir: DataDir) -> set[str]:
    """Runs that are listed though their labels cannot be read."""
    return {name for name, why in damages(data_dir) if "labels.json" in why}


def said(page: AppTest) -> str:
    return "\n".join([text(page), *(expander.label for expander in page.expander)])


def test_what_is_listed_is_listed_everywhere(
    served: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.in_memory(served) as store:
        ids = set(queries.list_experiments(store)["experiment_id"])
        runs = store.query("SELECT run_id, state FROM runs JOIN progress USING (run_id)")
    states = dict(runs.itertuples(index=False))
    assert ids == {experiment.experiment_id for experiment in listed(served)} and len(ids) > 80
    state_by_run, experiment_id = {}, ""
    for line in status(served, capsys).splitlines():
        if line.endswith("run folders cannot be read:"):
            break
        first, second = line.split()[:2]
        if line.startswith(" "):
            state_by_run[f"{experiment_id}.{first}"] = second.rstrip(":")
        else:
            experiment_id = first
    assert {name.partition(".")[0] for name in state_by_run} == ids
    missing = {name for name, state in state_by_run.items() if state == "missing"}
    assert len(missing) == 1
    broken = {name for name, state in state_by_run.items() if state == "unreadable"}
    assert broken <= {name for name, _ in damages(served)}
    for name in state_by_run.keys() - broken - missing:
        assert state_by_run[name] == states[name], name
