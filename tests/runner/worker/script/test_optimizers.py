"""The form of a script's optimizer is a setting of a backend."""

from pathlib import Path

import pytest

from breakeven.runner.errors import WorkloadError
from tests.runner.worker.script.scripts import NET, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

SCRIPT = (
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
        return run(tmp_path, SCRIPT, label, **changes).of("value")[0]["value"]

    assert (fused("baseline"), fused("none-fused")) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            "torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)",
            "itself chooses the implementation",
        ),
        ("torch.optim.Rprop(model.parameters(), lr=0.1)", "Rprop has no 'fused' implementation"),
    ],
)
def test_a_form_that_cannot_be_measured_is_refused(tmp_path: Path, made: str, says: str) -> None:
    code = SCRIPT.replace("torch.optim.SGD(model.parameters(), lr=0.1)", made)
    assert code != SCRIPT
    with pytest.raises(WorkloadError, match=says):
        run(tmp_path, code, "none-fused", backends=("none:optimizer=fused",))


def test_a_run_without_a_form_says_which_settings_no_candidate_can_change(tmp_path: Path) -> None:
    def fixed(folder: str, made: str) -> list[str]:
        code = SCRIPT.replace("torch.optim.SGD(model.parameters(), lr=0.1)", made)
        place = tmp_path / folder
        place.mkdir()
        return run(place, code.replace('"fused", bool', '"x", 1 or bool')).workload[
            "fixed_settings"
        ]

    sgd = "torch.optim.SGD(model.parameters(), lr=0.1"
    assert fixed("free", f"{sgd})") == []
    assert fixed("chosen", f"{sgd}, fused=True)") == ["optimizer"]
    assert fixed("other", "torch.optim.Rprop(model.parameters())") == ["optimizer"]
