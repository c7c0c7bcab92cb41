"""A user's training script, measured step by step: the events in the journal."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from breakeven.runner.errors import CodeNotAllowed, WorkloadError
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import ScriptSpec
from breakeven.runner.specs.scenario_fields import TuneSpec
from breakeven.runner.worker.compiler.observer import PACKAGES
from breakeven.runner.worker.device import base
from breakeven.runner.worker.training.profiler import StepProfiler
from tests.helpers.loop import TurnsOnPaper, of_kind, torch_afresh
from tests.runner.worker.script.scripts import NET, Ended, Ran, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

TEN_STEPS = (
    NET
    + """
model = breakeven.compile(model)
for number in range(10):
    breakeven.step(made(torch.randn(8, 4)), samples=8, tokens=16)
"""
)


AUTOCAST = """
@torch.autocast("cpu", dtype=torch.bfloat16)
def forward(points):
    return model(points)

def made"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """The ten steps, by the label of the run."""
    folder, runs = tmp_path_factory.mktemp("ten"), {}
    for label in ("baseline", "control", "eager"):
        with torch_afresh():
            runs[label] = run(folder, TEN_STEPS, label)
    return runs


def by_hand(code: str, seed: int = 0) -> list[float]:
    """The losses of the script without anybody who measures it."""
    torch.manual_seed(seed)
    losses: list[float] = []
    code = code.replace("breakeven.step(", "told(").replace("= breakeven.compile", "=")
    names = {"told": lambda loss, **_: losses.append(float(loss))}
    exec(compile(code, "by hand", "exec"), names)
    return losses


def places(ran: Ran) -> list[tuple[int, int, bool]]:
    return [
        (block["first_step"], block["num_steps"], block["warm_up"])
        for block in ran.of_kind("block")
    ]


def hashed(ran: Ran) -> dict[int, str]:
    """Of the points that each step was given."""
    return {event["step"]: event["floats"][0]["sha256"] for event in ran.of_kind("inputs")}


def test_a_script_is_measured_with_the_losses_that_it_has_by_hand(ran: dict[str, Ran]) -> None:
    baseline = ran["baseline"]
    assert baseline.losses == by_hand(TEN_STEPS.replace("model = breakeven.compile(model)\n", ""))
    assert places(baseline) == [(0, 4, False), (4, 4, False), (8, 2, False)]
    assert [event["step"] for event in baseline.of_kind("step")] == list(range(10))
    assert all(event["seconds"] > 0 for event in baseline.of_kind("step"))
    assert baseline.turns.said == ["ready", "done", "done", "finished"]
    workload = baseline.workload
    assert workload["num_steps"] == 10 and workload["num_parameters"] == 4 * 2 + 2
    assert (workload["samples_per_step"], workload["tokens_per_step"]) == (8, 16)
    assert workload["precision"] == "float32"
    worked_on = [(event["samples"], event["tokens"]) for event in baseline.of_kind("block")]
    assert worked_on == [(32, 64), (32, 64), (16, 32)]


def test_a_backend_compiles_what_the_script_names_and_learns_the_same(ran: dict[str, Ran]) -> None:
    baseline, eager = ran["baseline"], ran["eager"]
    assert not baseline.of_kind("compile_started") and eager.of_kind("compile_started")
    assert eager.losses == pytest.approx(baseline.losses, abs=1e-6)
    compiled = [event["step"] for event in eager.of_kind("step") if event["compiled"]]
    assert compiled == [0]
    assert eager.workload["weights_sha256"] == baseline.workload["weights_sha256"]


def test_the_control_begins_with_minutely_other_weights(ran: dict[str, Ran]) -> None:
    baseline, control = ran["baseline"], ran["control"]
    assert control.losses != baseline.losses
    assert control.losses == pytest.approx(baseline.losses, abs=1e-3)
    # The hash is that of the weights before they were changed: the script made the same.
    assert control.workload["weights_sha256"] == baseline.workload["weights_sha256"]


def test_a_call_of_torch_compile_does_what_the_run_says_and_the_notes_say_so(
    tmp_path: Path,
) -> None:
    code = TEN_STEPS.replace(
        "breakeven.compile(model)", "torch.compile(model, mode='max-autotune')"
    )
    baseline, eager = run(tmp_path, code), run(tmp_path, code, "eager")
    assert not baseline.of_kind("compile_started") and eager.of_kind("compile_started")
    (note,) = eager.workload["notes"]
    assert note.startswith("train.py:25 calls torch.compile with mode='max-autotune'")


def test_a_function_is_compiled_and_the_control_finds_the_model_in_it(tmp_path: Path) -> None:
    code = (
        NET
        + """
made = breakeven.compile(made)
for number in range(8):
    breakeven.step(made(torch.randn(8, 4)))
"""
    )
    baseline, control = run(tmp_path, code), run(tmp_path, code, "control")
    assert control.losses != baseline.losses
    assert baseline.workload["num_parameters"] == 10
    assert run(tmp_path, code, "eager").of_kind("compile_started")


DEEP = """
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(4, 2, 8) for _ in range(3)])
        self.head = nn.Linear(4, 2)

    def forward(self, points):
        for layer in self.layers:
            points = layer(points)
        return self.head(points)

model = Deep()
"""


@pytest.mark.parametrize(
    ("model", "backend", "label"),
    [
        ("model = nn.Sequential(nn.Linear(4, 2))", "eager", "eager"),
        (DEEP, "eager:scope=blocks", "eager-blocks"),
    ],
    ids=["whole", "blocks"],
)
def test_modules_of_torchs_own_are_compiled_too(
    tmp_path: Path, model: str, backend: str, label: str
) -> None:
    """Dynamo does not begin in a forward that lies in torch itself."""
    code = TEN_STEPS.replace("model = Net()", model)
    ran = run(tmp_path, code, label, backends=(backend,))
    assert [event["step"] for event in ran.of_kind("step") if event["compiled"]] == [0]


def test_what_was_given_to_the_first_steps_and_the_first_of_each_block_is_hashed(
    tmp_path: Path, ran: dict[str, Ran]
) -> None:
    hashes = hashed(ran["baseline"])
    assert list(hashes) == [0, 1, 2, 3, 4, 8] and len(set(hashes.values())) == 6
    assert hashes == hashed(ran["eager"])
    changed = TEN_STEPS.replace("torch.randn(8, 4))", "torch.randn(8, 4) + (number == 2))")
    others = hashed(run(tmp_path, changed, "control"))
    assert [step for step in hashes if hashes[step] != others[step]] == [2]


LATER = """
from breakeven.runner.worker.device import base

def wait():
    clock = base.perf_counter
    base.perf_counter = lambda: clock() + 1000
"""
"""Lets 1,000 seconds pass on the clock of steps."""


def test_an_evaluation_is_recorded_and_part_of_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "perf_counter", base.perf_counter)  # is put back afterwards
    code = (
        NET
        + LATER
        + """
model = breakeven.compile(model)
for number in range(8):
    breakeven.step(made(torch.randn(8, 4)))
    if number == 5:
        model.eval()
        with torch.no_grad():
            model(torch.randn(8, 4))
        wait()
        breakeven.evaluated("val", samples=8, loss=0.5, accuracy=torch.tensor(0.75))
        model.train()
"""
    )
    ran = run(tmp_path, code, "eager")
    (evaluation,) = ran.of_kind("evaluation")
    assert (evaluation["split"], evaluation["step"], evaluation["loss"]) == ("validation", 6, 0.5)
    assert evaluation["metrics"] == {"accuracy": 0.75} and evaluation["num_samples"] == 8
    assert max(event["seconds"] for event in ran.of_kind("step")) < 1000
    # What the evaluation compiled is none of the training's latency.
    phases = [event["phase"] for event in ran.of_kind("compile_started")]
    assert phases == ["training", "evaluating"]
    assert [event["step"] for event in ran.of_kind("step") if event["compiled"]] == [0]


def test_a_training_between_two_steps_is_no_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "perf_counter", base.perf_counter)
    code = (
        NET
        + LATER
        + """
model = breakeven.compile(model)
for number in range(8):
    breakeven.step(made(torch.randn(8, 4)))
    if number == 5:
        made(torch.randn(8, 4))
        wait()
        breakeven.evaluated("val", loss=0.5)
"""
    )
    seconds = [event["seconds"] for event in run(tmp_path, code, "baseline").of_kind("step")]
    assert [value > 1000 for value in seconds] == [False] * 6 + [True, False]


def test_a_script_that_replaces_the_clock_changes_no_time_of_a_step(tmp_path: Path) -> None:
    stopped = "import time\nreal = time.perf_counter\ntime.perf_counter = lambda: 0.0\n"
    ran = run(tmp_path, f"{stopped}{TEN_STEPS}time.perf_counter = real\n", "baseline")
    assert min(event["seconds"] for event in ran.of_kind("step")) > 0


def evaluated_inputs(tmp_path: Path, sizes: list[int], first: int = 0) -> str:
    """The hash of an evaluation of samples, counted from the first one, in batches."""
    code = f"""
import breakeven, torch
words = torch.nn.Embedding(100, 4)
optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
for number in range(8):
    optimizer.zero_grad()
    loss = words(torch.zeros(2, 3, dtype=torch.long)).square().mean()
    loss.backward()
    optimizer.step()
    breakeven.step(loss)
words.eval()
samples = torch.arange({first}, 60).view(-1, 3)
for batch in samples.split({sizes}):
    words(batch)
breakeven.evaluated(loss=1.0)
"""
    (evaluation,) = run(tmp_path, code, "baseline").of_kind("evaluation")
    return str(evaluation["inputs_sha256"])


def test_what_was_evaluated_is_hashed_whatever_the_size_of_batches(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir(), (tmp_path / "two").mkdir(), (tmp_path / "fewer").mkdir()
    hashes = [
        evaluated_inputs(tmp_path / "one", [20]),
        evaluated_inputs(tmp_path / "two", [8, 12]),
        evaluated_inputs(tmp_path / "fewer", [19], first=3),
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_teacher_that_never_trains_is_part_of_the_step(tmp_path: Path) -> None:
    code = (
        NET
        + """
import time
teacher = breakeven.compile(Net().eval())
model = breakeven.compile(model)
for number in range(8):
    points = torch.randn(8, 4)
    teacher(points)
    time.sleep(0.02)
    breakeven.step(made(points))
"""
    )
    assert min(event["seconds"] for event in run(tmp_path, code).of_kind("step")[1:]) > 0.02


def test_a_script_ends_after_the_steps_asked_for_or_when_it_is_asked_to_and_cannot_catch_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = "    breakeven.step(made(torch.randn(8, 4)), samples=8, tokens=16)\n"
    assert step in TEN_STEPS
    caught = f"    try:\n    {step}    except Exception:\n        print('caught')\n"
    ran = run(tmp_path, TEN_STEPS.replace(step, caught), script=ScriptSpec(steps=6))
    assert "caught" not in capsys.readouterr().out
    assert len(ran.losses) == 6 and ran.turns.said[-1] == "finished"
    assert places(ran) == [(0, 4, False), (4, 2, False)] and not ran.of_kind("stopped")
    early = run(tmp_path, TEN_STEPS, "control", script=ScriptSpec(steps=60))
    (stopped,) = early.of_kind("stopped")
    assert stopped["step"] == 10 and stopped["reason"] == "the script ended"
    turns = TurnsOnPaper(num_turns=2)  # Whoever asks to stop is obeyed at the next step.
    turns.stop_requested = False
    endless = TEN_STEPS.replace("range(10)", "range(1000)")
    assert len(run(tmp_path, endless, "eager", turns=turns).losses) == 8


def test_a_script_that_lost_a_search_ends_at_its_next_step_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = TEN_STEPS.replace("range(10)", "range(1000)") + "print('after the training')\n"
    ran = run(tmp_path, code, turns=Ended(), scenario="tune", tune=TuneSpec(steps=500))
    (stopped,) = ran.of_kind("stopped")
    assert stopped["step"] == 16 and stopped["ending"]["cause"] == "loses"
    assert stopped["reason"] == "for 500 steps it surely takes longer than inductor"
    assert ran.turns.said[-1] == "finished" and "after" not in capsys.readouterr().out
    # The first turns warm up, as in every search.
    assert [block["warm_up"] for block in ran.of_kind("block")] == [True, True, False, False]
    turns = Ended(block_steps=2)
    ran = run(tmp_path, code, "control", turns=turns, scenario="tune", tune=TuneSpec(steps=500))
    assert [block["num_steps"] for block in ran.of_kind("block")] == [4, 2, 2, 2]


@pytest.mark.parametrize(
    ("steps", "known", "lengths"),
    [
        (50, False, [4] * 12 + [2]),
        (50, True, [5] * 10),
        (112, False, [4] * 25 + [10, 2]),
        (120, True, [10] * 12),
        (20, True, [4] * 5),
    ],
)
def test_blocks_of_a_script_with_few_steps_are_short_enough_for_an_interval(
    tmp_path: Path, steps: int, known: bool, lengths: list[int]
) -> None:
    """Six rounds after the first one make an interval."""
    code = TEN_STEPS.replace("range(10)", f"range({steps})")
    script = ScriptSpec(steps=steps if known else 0)
    ran = run(tmp_path, code, block_steps=10, script=script)
    assert [block["num_steps"] for block in ran.of_kind("block")] == lengths


def test_the_last_steps_are_profiled_where_it_is_known_which_these_are(tmp_path: Path) -> None:
    code = TEN_STEPS.replace("range(10)", "range(30)")
    ran = run(tmp_path, code, profile_steps=2, script=ScriptSpec(steps=30))
    # On the CPU one turn of one step that warms up, and two that are profiled.
    assert places(ran)[-1] == (27, 3, True) and not any(block[2] for block in places(ran)[:-1])
    (profile,) = ran.of_kind("profile")
    assert profile["steps"] == 2 and "failure" not in profile and ran.of_kind("profile_kernel")
    assert len(ran.losses) == 30


def test_of_a_script_without_a_known_end_early_steps_are_profiled(tmp_path: Path) -> None:
    code = TEN_STEPS.replace("range(10)", "range(20)")
    ran = run(tmp_path, code, profile_steps=2)
    assert places(ran)[:4] == [(0, 4, False), (4, 4, False), (8, 3, True), (11, 5, False)]
    assert ran.losses == by_hand(code.replace("model = breakeven.compile(model)\n", ""))


def test_early_steps_are_not_profiled_on_a_gpu_where_a_profile_makes_later_steps_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepProfiler, "slows_later_steps", True)
    code = TEN_STEPS.replace("range(10)", "range(30)")
    unknown = run(tmp_path, code, profile_steps=2)
    assert not unknown.of_kind("profile") and not any(block[2] for block in places(unknown))
    assert len(unknown.losses) == 30
    known = run(tmp_path, code, "control", profile_steps=2, script=ScriptSpec(steps=30))
    assert known.of_kind("profile")


def test_a_script_that_ends_while_it_is_profiled_has_no_profile(tmp_path: Path) -> None:
    ran = run(tmp_path, TEN_STEPS, profile_steps=50)
    assert len(ran.losses) == 10 and not ran.of_kind("profile")
    assert places(ran) == [(0, 4, False), (4, 4, False), (8, 2, True)]


BY_LIBRARY = f"""
code = compile("torch.compile(lambda x: x, backend='eager')", {PACKAGES + "lib/train.py"!r}, "exec")
exec(code, {{"torch": torch, "__name__": "lib.train"}})
net = torch.nn.Linear(4, 1)
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (NET, "ended without a step"),
        (NET + "breakeven.step(torch.ones(()))", "nothing was called before"),
        (
            NET + BY_LIBRARY + "breakeven.step(torch.ones(()))",
            r"a library compiles functions of its own \(lib/train.py:1\)",
        ),
        (TEN_STEPS.replace(", samples=8", ")\nbreakeven.step(torch.ones(3)"), r"shape \(3,\)"),
        (TEN_STEPS + "raise SystemExit(3)", r"sys.exit\(3\)"),
        (NET + "import no_such_package", "no_such_package.*install"),
        (NET + "raise EOFError('when reading')", "no standard input"),
    ],
)
def test_what_cannot_be_measured_is_said_with_what_to_do(
    tmp_path: Path, code: str, said: str
) -> None:
    with pytest.raises(WorkloadError, match=said):
        run(tmp_path, code)


@pytest.mark.parametrize("end", ["SystemExit(3)", "ValueError('broken')", "SystemExit(0)"])
def test_a_script_that_leaves_or_fails_in_a_block_keeps_the_steps_before(
    tmp_path: Path, end: str
) -> None:
    code = TEN_STEPS + f"    if number == 5:\n        raise {end}\n"
    fails = pytest.raises((WorkloadError, ValueError))
    with nullcontext() if end == "SystemExit(0)" else fails:
        run(tmp_path, code)
    events, _ = read_events(tmp_path / "x.baseline" / "events.jsonl")
    assert [event["step"] for event in of_kind(events, "step")] == list(range(6))


def test_each_run_works_in_a_folder_of_its_own_and_says_in_which_precision(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "weights.pt").write_text("mine")
    (project / "words.txt").write_text("data")
    code = (
        TEN_STEPS.replace("model(points)", "forward(points)").replace("def made", AUTOCAST)
        + """
from pathlib import Path
assert Path("words.txt").read_text() == "data" and Path(__file__).parent == Path.cwd()
torch.save(model.state_dict(), "weights.pt")
Path("log").mkdir()
Path("log/new.txt").write_text("new")
"""
    )
    ran = run(tmp_path, code)
    assert (project / "weights.pt").read_text() == "mine"
    left = {
        str(file.relative_to(ran.folder.workplace))
        for file in ran.folder.workplace.rglob("*")
        if file.is_file()
    }
    assert left == {"weights.pt", "log/new.txt"}  # what it only read is gone
    assert ran.workload["precision"] == "bf16"


def test_a_folder_that_nobody_allowed_is_not_copied(tmp_path: Path) -> None:
    """A specification may come from anybody, also by hand into the queue."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    with pytest.raises(CodeNotAllowed):
        run(tmp_path, TEN_STEPS, script=ScriptSpec(folder=str(secrets)))


def test_a_folder_that_came_with_modules_and_a_note_of_a_checkpoint_brings_no_code(
    tmp_path: Path,
) -> None:
    """The note is of another file system: nothing here was ever saved by it."""
    come = RunDir(tmp_path / "x.baseline")
    come.workplace.mkdir(parents=True)
    (come.workplace / "tabnanny.py").write_text("raise SystemError('code of a stranger')\n")
    (come.workplace / "last.pt").write_bytes(b"x")
    come.checkpoints.mkdir(parents=True)
    note = {
        "format": 1,
        "step": 4,
        "by": "breakeven.save",
        "path": "work/last.pt",
        "identity": [1, 1, 1],
        "random": {},
    }
    torch.save(note, come.checkpoints / "step-00000004-12345678.pt")
    # A module that nobody has imported yet: `sys.modules` would hide the other.
    ran = run(tmp_path, "import tabnanny\n" + TEN_STEPS, again=True)
    assert len(ran.losses) == 10


def test_a_backend_that_allows_graph_breaks_lifts_the_fullgraph_of_a_script(tmp_path: Path) -> None:
    code = (
        NET
        + """
@breakeven.compile(fullgraph=True)
def step(x):
    print("a line that Dynamo cannot trace")
    return (x * 2).sum()

for _ in range(4):
    breakeven.step(step(torch.randn(8, 4)))
"""
    )
    backends = ("eager", "eager:fullgraph=false")
    with pytest.raises(Exception, match="print"):
        run(tmp_path, code, "eager", backends=backends)
    lifted = run(tmp_path, code, "eager-fullgraph_false", backends=backends)
    assert len(lifted.losses) == 4 and lifted.of_kind("graph_break")
