"""The tab Verdict of an experiment in several environments."""

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.numbers.formats import DASH
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.helpers.pages import every_tab, text


@pytest.mark.heavy
def test_the_verdict_compares_the_environments_in_a_sentence(folder: DataDir) -> None:
    names = ("old=/a/python", "new=/b/python")
    spec = experiment_spec(num_steps=80, block_steps=10, environments=names)
    for label in (arm.label for arm in spec.arms):
        seconds = {"inductor@old": 0.1, "inductor@new": 0.08}.get(label, 0.2)
        losses = [loss + 1e-5 * label.startswith("control") for loss in falling_losses(80)]
        Recording(folder.runs, label, spec).claim().start().blocks([seconds] * 8, losses).end()
    tabs = every_tab(experiment=EXPERIMENT_ID)  # no backend fails
    said = text(tabs[0]).replace("\u2060", "")  # which keeps an address from becoming a link
    assert "new trains this at 1.25x" in said and "Nothing is lost with new." in said
    assert [line for line in said.splitlines() if line.startswith("| ")] == [
        "| Run | Speed over old | Compile latency | Memory needed | Parity |",
        "| --- | --- | --- | --- | --- |",
        f"| baseline@new | 1.00x (1.00 to 1.00), same | {DASH} | {DASH} | matches |",
        f"| inductor@new | 1.25x (1.25 to 1.25), faster | {DASH} | {DASH} | matches |",
    ]
    assert "new: all recorded versions are the same." in said
