"""Downloads in PyTorch's formats, and imported rows beside own ones."""

import json
from collections.abc import Iterator

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.index.store import Store
from breakeven.views.parts import exchange
from breakeven.views.shared import resources
from tests.helpers.imports import HARNESS, bring
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.pages import ROOT, close_store

SPEC = experiment_spec(num_steps=80, block_steps=10)


@pytest.fixture
def data_dir(data_dir: DataDir) -> DataDir:
    """With a recorded experiment."""
    record_experiment(data_dir.runs, SPEC)
    return data_dir


@pytest.fixture
def page(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    """The settings of the experiment, not yet opened."""
    monkeypatch.setenv("BREAKEVEN_DATA", str(data_dir.path))
    monkeypatch.setattr(resources, "EXAMPLES", data_dir.path / "examples")
    monkeypatch.setattr(resources, "ensure_supervisor", lambda data_dir: None)
    app = AppTest.from_file(ROOT / "dashboard.py", default_timeout=120)
    app.switch_page("views/experiment.py")
    app.query_params["tab"] = "Settings"
    yield app
    close_store(data_dir)


def imported_rows(app: AppTest) -> list[pd.DataFrame]:
    return [frame.value for frame in app.dataframe if "From" in frame.value.columns]


def test_imported_rows_stand_beside_own_ones_and_a_bad_file_beside_theirs_hides_none(
    page: AppTest, data_dir: DataDir
) -> None:
    bring(data_dir, HARNESS)
    bring(data_dir, "a,b\n1,2\n", "earlier.csv")
    app = page.run()
    assert not app.exception
    assert any("earlier.csv is no performance or accuracy CSV" in w.value for w in app.warning)
    (rows,) = imported_rows(app)
    imported = "imported: inductor.csv"
    assert rows["From"].tolist() == ["measured here", imported, imported]
    assert rows["Model"].tolist() == ["builtin:bert-tiny", "BertForMaskedLM", "OPTForCausalLM"]
    assert rows["Outcome"].tolist() == ["pass", "measured", "failed"]
    dash = "\N{EN DASH}"
    assert rows["Speedup"].tolist() == ["2.00x", "1.50x", dash], "a failure is no number"
    assert rows["Step time"].tolist() == ["100 ms", "41.2 ms", dash]
    assert rows["Compile latency"].tolist() == ["3.00 s", "18.7 s", dash]


def test_every_format_has_a_button_and_a_file_that_is_none_of_the_harness_is_named(
    page: AppTest, data_dir: DataDir
) -> None:
    bring(data_dir, "a,b\n1,2\n")
    app = page.run()
    assert not app.exception
    assert any("inductor.csv is no performance or accuracy CSV" in w.value for w in app.warning)
    assert imported_rows(app) == []
    labels = {button.proto.label for button in app.get("download_button")}
    assert {f"{title} ({suffix.upper()})" for title, suffix in exchange.TITLES.values()} <= labels
    assert exchange.TITLES.keys() == exchange.FORMATS.keys()
    with Store.in_memory(data_dir) as store:
        records = json.loads(exchange._written(exchange.FORMATS["hud-json"], store, EXPERIMENT_ID))
    assert {record["model"]["backend"] for record in records} == {"inductor"}
