"""Side by side: the page that compares experiments."""

from dataclasses import replace

import pytest

from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ModelSpec
from tests.helpers.journals import Recording, experiment_spec, record_experiment
from tests.helpers.pages import charts, opened, text

IDS = [f"2026112{day}-093015-123456-7f3a" for day in range(10)]


@pytest.fixture(scope="module")
def recorded(kept_folder: DataDir) -> DataDir:
    """Two equal experiments, and one with another model."""
    spec = experiment_spec(num_steps=80)
    for experiment_id in IDS[:2]:
        record_experiment(kept_folder.runs, spec, experiment_id)
    other = experiment_spec(
        num_steps=80, name="<b>other</b>", model=ModelSpec(source="builtin:bert-base")
    )
    record_experiment(kept_folder.runs, other, IDS[2])
    return kept_folder


def beside(*experiment_ids: str, **query: str):
    return opened("experiments", view="Side by side", side=[*experiment_ids], **query)


def test_two_that_are_alike_share_tables_and_axes(recorded: DataDir):
    app = beside(*IDS[:2])
    said = text(app)
    assert "1.00x" in said and "same" in said
    assert "1.00 x" not in said, "written as speedups are"
    assert "Nothing: settings, machines, software and data are the same." in said
    assert "Losses are not drawn together" not in said
    drawn = charts(app)
    assert '"name":"A"' in drawn and '"name":"B"' in drawn
    assert "Loss of baseline" in said
    # Archived experiments can still be compared.
    change_labels(recorded, IDS[0], lambda old: replace(old, archived=True))
    for chosen, shown in (("inductor", "inductor"), ("nonsense", "baseline")):
        assert f"Loss of {shown}" in text(beside(*IDS[:2], losses_of=chosen))


def test_what_may_not_be_compared_is_said_and_not_drawn(recorded: DataDir):
    app = beside(IDS[0], IDS[2])
    said = text(app)
    assert "A and B: neither speeds nor losses are compared, because the models differ." in said
    assert "Losses are not drawn together: the models differ." in said
    assert "not compared" in said and '"name":"B"' not in charts(app)
    assert "model.source" in said and "builtin:bert-base" in said


def test_fewer_than_two_or_more_than_eight_break_nothing(folder: DataDir):
    record_experiment(folder.runs, experiment_spec(), IDS[0])
    for ids in ([], ["nonsense", IDS[0]]):
        assert "Choose two experiments or more" in text(beside(*ids))
    for experiment_id in IDS[1:]:
        Recording(folder.runs, "baseline", experiment_id=experiment_id).claim().start().end()
    app = beside(*IDS)
    assert len(app.multiselect(key="address.side").value) == 8


def test_several_devices_beside_one_show_how_they_scale(folder: DataDir):
    """Equal step times with one batch: the second device saves nothing."""
    on_gpu = {"device_name": "Test GPU"}
    for experiment_id, devices in zip(IDS[:3], (["0"], ["0", "1"], ["0", "1"]), strict=True):
        spec = experiment_spec(num_steps=80, devices=tuple(f"cuda:{number}" for number in devices))
        environment = on_gpu if experiment_id != IDS[2] else {"device_name": "Another GPU"}
        record_experiment(folder.runs, spec, experiment_id, environment=environment)
    said = text(beside(*IDS[:3]))
    assert "Scaling over devices" in said and "50.0 %" in said
    assert "B on 2 devices against A on one, strong scaling" in said
    assert "C is not compared with one device (A): the devices are of different models." in said
    assert "Scaling over devices" not in text(beside(*IDS[1:3]))
