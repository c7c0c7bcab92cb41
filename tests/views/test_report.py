"""What leaves of a whole experiment: an archive of all its files."""

import io
import zipfile

import pandas as pd
import pytest

from runner.folders.run_dir import DataDir
from storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment
from views.report.content import content
from views.report.everything import everything

NAME = "race-20261121-7f3a"


@pytest.fixture
def store(data_dir: DataDir) -> Store:
    record_experiment(data_dir.runs, experiment_spec(num_steps=80, name="Race"))
    return Store.in_memory(data_dir)


def test_an_archive_of_everything_has_each_table_and_the_data_of_each_chart(store: Store) -> None:
    whole = content(store, EXPERIMENT_ID)
    made = zipfile.ZipFile(io.BytesIO(everything(store, whole, pictures=())))
    names = set(made.namelist())
    assert {f"{NAME}/tables/comparison.{end}" for end in ("csv", "parquet", "json", "md", "tex")} \
        <= names  # fmt: skip
    assert {f"{NAME}/data/{card.name}.csv" for card in whole.told.cards} <= names
    assert len(whole.told.cards) > 6
    losses = pd.read_csv(made.open(f"{NAME}/data/loss.csv"))
    assert losses.groupby("label").size().to_dict() == dict.fromkeys(
        ("baseline", "control", "inductor"), 80
    )
    assert made.read(f"{NAME}/spec.json").decode() == whole.spec.to_json()
    assert b"inductor" in made.read(f"{NAME}/pytorch/harness-performance-csv.csv")
    assert made.read(f"{NAME}/command.sh").startswith(b"python -m runner compare")


def test_the_same_experiment_gives_the_same_archive(store: Store) -> None:
    first, second = (everything(store, content(store, EXPERIMENT_ID), ()) for _ in range(2))
    assert first == second


@pytest.mark.browser
def test_every_figure_is_in_the_archive_as_a_picture(store: Store) -> None:
    whole = content(store, EXPERIMENT_ID)
    made = zipfile.ZipFile(io.BytesIO(everything(store, whole, ("svg",))))
    pictures = [name for name in made.namelist() if name.startswith(f"{NAME}/charts/")]
    assert len(pictures) == sum(len(card.figures) for card in whole.told.cards)
    assert all(made.read(name).startswith(b"<svg") for name in pictures)
    assert f"{NAME}/charts/break-even-time-saved.svg" in pictures


@pytest.mark.parametrize("scenario", ["accuracy", "cache", "speed"])
def test_what_compares_something_else_leaves_as_well(data_dir: DataDir, scenario: str) -> None:
    spec = experiment_spec(num_steps=20, scenario=scenario)
    for variant in spec.variants:
        run = Recording(data_dir.runs, variant.label, spec).claim().start()
        compiles = {"cold": 8.0, "warm": 2.0}.get(variant.cache or "", 0.0)
        run.blocks([0.5, 0.5], [1.0] * 20, compiles).end()
    with Store.in_memory(data_dir) as store:
        whole = content(store, EXPERIMENT_ID)
        made = zipfile.ZipFile(io.BytesIO(everything(store, whole, pictures=())))
    assert len([name for name in made.namelist() if "/tables/" in name]) >= 5
