"""Downloads in PyTorch's formats, and imported rows beside own ones."""

import json

import pandas as pd
from streamlit.testing.v1 import AppTest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.index.store import Store
from breakeven.views.parts import exchange
from tests.helpers.imports import HARNESS, bring
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.pages import opened

SPEC = experiment_spec(num_steps=80, block_steps=10)


def settings(folder: DataDir, *imports: tuple[str, ...]) -> AppTest:
    """The settings of a recorded experiment, beside which these files were imported."""
    record_experiment(folder.runs, SPEC)
    for file in imports:
        bring(folder, *file)
    return opened(experiment=EXPERIMENT_ID, tab="Settings")


def imported_rows(app: AppTest) -> list[pd.DataFrame]:
    return [frame.value for frame in app.dataframe if "From" in frame.value.columns]


def test_imported_rows_stand_beside_own_ones_and_a_bad_file_beside_theirs_hides_none(
    folder: DataDir,
) -> None:
    app = settings(folder, (HARNESS,), ("a,b\n1,2\n", "earlier.csv"))
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
    folder: DataDir,
) -> None:
    app = settings(folder, ("a,b\n1,2\n",))
    assert any("inductor.csv is no performance or accuracy CSV" in w.value for w in app.warning)
    assert imported_rows(app) == []
    labels = {button.proto.label for button in app.get("download_button")}
    assert {f"{title} ({suffix.upper()})" for title, suffix in exchange.TITLES.values()} <= labels
    assert exchange.TITLES.keys() == exchange.FORMATS.keys()
    with Store.in_memory(folder) as store:
        records = json.loads(exchange._written(exchange.FORMATS["hud-json"], store, EXPERIMENT_ID))
    assert {record["model"]["backend"] for record in records} == {"inductor"}
