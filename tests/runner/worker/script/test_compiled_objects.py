"""What a script may do with what `torch.compile` returns, as it may without Breakeven."""

import json
import runpy
from pathlib import Path

import pytest

from tests.helpers.loop import torch_afresh
from tests.runner.worker.script.scripts import NET, Ran, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

END = """
import json
for number in range(6):
    points = torch.randn(8, 4)
    loss = nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss)
with open("facts.json", "w") as file:
    json.dump(facts, file)
"""
WRAPPED = (
    NET
    + """
import copy, io, pickle
from torch._dynamo import OptimizedModule

plain, facts = model, []
state = plain.state_dict()

def tried(action):
    try:
        facts.append(str(action()))
    except Exception as error:
        facts.append(type(error).__name__)

model = torch.compile(plain, backend="eager")
tried(lambda: type(model) is OptimizedModule)
tried(lambda: (model._orig_mod is plain, model is plain, model.layer is plain.layer))
tried(lambda: list(model.state_dict()))
tried(lambda: model.load_state_dict(model.state_dict()))
tried(lambda: model.load_state_dict(state))
tried(lambda: model._orig_mod.load_state_dict(state))
tried(lambda: [name for name, _ in model.named_parameters()])
tried(lambda: (hasattr(model, "module"), hasattr(model, "layer"), hasattr(model, "_orig_mod")))
tried(lambda: model.module)
tried(lambda: (model.eval() is model, plain.training, model.train().training))
model.note = "kept by the model"
tried(lambda: plain.note)
copied = copy.deepcopy(model)
tried(lambda: (type(copied) is OptimizedModule, copied._orig_mod is plain, copied.note))
pickled = pickle.loads(pickle.dumps(model))
tried(lambda: (type(pickled) is OptimizedModule, list(pickled.state_dict())))
stream = io.BytesIO()
torch.save(model, stream)
stream.seek(0)
loaded = torch.load(stream, weights_only=False)
points = torch.randn(8, 4)
for other in (copied, pickled, loaded):
    tried(lambda: torch.equal(other(points), model(points)))
again = torch.compile(model, backend="eager")
tried(lambda: torch.equal(again(points), model(points)))
"""
    + END
)
RESUMED = (
    NET
    + """
torch.save({"model": torch.compile(Net(), backend="eager").state_dict()}, "last.pt")
facts = list(torch.load("last.pt")["model"])
model = torch.compile(model, backend="eager")
facts.append(str(model.load_state_dict(torch.load("last.pt")["model"])))
"""
    + END
)
LAZY = (
    NET
    + """
model = torch.compile(nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2)), backend="eager")
model(torch.randn(8, 4))
facts = [name for name, _ in model.named_parameters()] + [len(model)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    + END
)
IN_PLACE = (
    NET
    + """
facts = [model.compile(backend="eager"), hasattr(model, "_orig_mod"), list(model.state_dict())]
"""
    + END
)
BY_OWN_FUNCTION = (
    NET
    + """
state = Net().state_dict()
compiled = breakeven.compile(model, backend="eager")
facts = [compiled is model, list(compiled.state_dict()), str(compiled.load_state_dict(state))]
"""
    + END
)


@pytest.mark.parametrize(
    "code",
    [WRAPPED, RESUMED, LAZY, IN_PLACE, BY_OWN_FUNCTION],
    ids=["wrapped", "resumed", "lazy", "in place", "by breakeven.compile"],
)
def test_what_torch_compile_returns_is_what_a_script_gets_without_breakeven(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(code)
    with torch_afresh(), monkeypatch.context() as inside:
        inside.chdir(tmp_path)
        runpy.run_path(str(script), run_name="__main__")
    facts = json.loads((tmp_path / "facts.json").read_text())
    for label in ("baseline", "control", "eager"):
        with torch_afresh():
            ran = run(tmp_path, code, label)
        assert json.loads((ran.folder.workplace / "facts.json").read_text()) == facts
        assert len(ran.losses) == 6
        assert bool(ran.of_kind("compile_started")) == (label == "eager")


def test_a_module_that_the_script_kept_beside_its_compiled_form_stays_uncompiled(
    tmp_path: Path,
) -> None:
    code = (
        NET
        + """
fast = torch.compile(model)
for number in range(6):
    model(torch.randn(8, 4))  # compiled, another shape or mode would compile once more
    model(torch.randn(3, 4).double().float())
    points = torch.randn(8, 4)
    loss = fast(points).square().mean()
    loss.backward()
    optimizer.step()
    breakeven.step(loss)
"""
    )
    ran = run(tmp_path, code, "eager")
    assert [event["step"] for event in ran.of_kind("compile_started")] == [0]


LIBRARY = """
import torch

class Trainer:
    def __init__(self, module):
        self.module = torch.compile(module)

def helper(points):
    return points + 1

helper = torch.compile(helper, backend="eager")
"""


def test_a_module_that_a_library_compiles_for_the_script_gets_the_backend_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of the library itself stays as the library has it."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "fitting.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setattr("breakeven.runner.worker.script.torch_compile.LIBRARIES", (f"{packages}/",))
    code = (
        NET
        + """
import fitting
model = fitting.Trainer(model).module
for number in range(6):
    breakeven.step(made(torch.randn(8, 4)))
"""
    )
    ran: dict[str, Ran] = {label: run(tmp_path, code, label) for label in ("baseline", "eager")}
    assert not ran["baseline"].of_kind("compile_started") and ran["eager"].of_kind(
        "compile_started"
    )
    assert ran["eager"].losses == pytest.approx(ran["baseline"].losses, abs=1e-6)
    (note,) = [note for note in ran["eager"].workload["notes"] if "torch.compile" in note]
    assert "fitting.py:6" in note
