"""A run that was measured again: what comes out as expected, what does not, and what nobody knows.

Equal processes differ by 0.1 % here and steps take 0.2 s without a compiler. With one control in
either experiment, a speedup may then move by 4.303 x sqrt(0.001^2 + 0.001^2) = 0.61 % by processes.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.investigations import replay
from breakeven.storage.difference.replays import Replay, ReplayedNumber, load_replay, replays_of
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.terminal.difference import elsewhere, replay_report, replay_status, summary
from tests.helpers.journals import Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy  # whole commands over stores of their own: many seconds

IDS = [f"2026112{day}-093015-123456-7f3a" for day in range(10)]
SPEC = experiment_spec(num_steps=80, backends=("eager", "inductor"))
MIB = 2**20
TORCH_2_14 = {"versions": {"torch": "2.14.0", "transformers": "5.23.0"}}


def record(
    data_dir: DataDir, experiment_id: str, replay_of: str | None = None, *, backend: float = 0.1,
    machine: float = 1.0, compile_seconds: float = 3.0, peak: int = 100 * MIB, offset: float = 0.0,
    label: str = "inductor", **environment: Any,
) -> None:  # fmt: skip
    """`machine` is how many times longer every step takes."""
    spec = SPEC if replay_of is None else replay(SPEC, replay_of, label)
    losses = falling_losses(spec.num_steps)
    of_role = {"baseline": (0.2, 0.0), "control": (0.2002, 1e-5), "backend": (backend, offset)}
    for variant in spec.variants:
        seconds, shift = of_role[variant.role]
        run = Recording(data_dir.runs, variant.label, spec, experiment_id).claim()
        run.start(environment=environment or None)
        for number in range(spec.num_steps // spec.block_steps):
            part = [loss + shift for loss in losses[number * 10 : number * 10 + 10]]
            times = [seconds * machine] * 10
            compiles = variant.role == "backend" and number == 0
            times[0] += compile_seconds if compiles else 0.0
            run.block(times, part, compiled=[0] if compiles else (), peak_memory_bytes=peak)
        run.evaluation(0.8).end()


CHANGED: dict[str, dict[str, Any]] = {
    "backend": {"backend": 0.102},
    "machine": {"machine": 1.5},
    "peak_memory_bytes": {"peak": 103 * MIB},
    "final_loss": {"offset": 0.001},
    "memory within the margin": {"peak": 101 * MIB},
    "elsewhere": {"host": "other", **TORCH_2_14},
    "eager": {"label": "eager"},
}
AGAIN = dict(zip(CHANGED, IDS[1:], strict=False))
OTHER_TRAINING, ORPHAN = IDS[8:]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An experiment and its replays."""
    data_dir = DataDir(tmp_path_factory.mktemp("replays"))
    record(data_dir, IDS[0])
    for name, changed in CHANGED.items():
        record(data_dir, AGAIN[name], IDS[0], **changed)
    spec = replay(SPEC, IDS[0], "inductor")
    for variant in spec.variants:
        run = Recording(data_dir.runs, variant.label, spec, OTHER_TRAINING).claim()
        run.start(data_sha256="other").blocks([0.1] * 8, falling_losses(80)).end()
    record(data_dir, ORPHAN, "20250101-093015-123456-7f3a")
    with Store.in_memory(data_dir) as store:
        yield store


def figure(found: Replay, name: str) -> ReplayedNumber:
    return next(one for one in found.figures if one.name == name)


def verdicts(found: Replay) -> dict[str, str]:
    return {one.name: one.verdict for one in found.figures}


def test_what_comes_out_the_same_is_inside_and_compiling_is_not_judged_yet(data_dir: DataDir):
    record(data_dir, IDS[0])
    record(data_dir, IDS[1], IDS[0])
    with Store.in_memory(data_dir) as store:
        found = load_replay(store, IDS[1])
    assert verdicts(found) == {
        "speedup": "inside", "step_seconds": "inside", "compile_seconds": "not judged",
        "peak_memory_bytes": "inside", "final_loss": "inside",
    }  # fmt: skip
    speedup = figure(found, "speedup")
    # 2 x exp(-+ 4.303 x sqrt(ln(1.001)^2 + ln(1.001)^2)); rounds do not stray here.
    assert (speedup.low, speedup.high) == pytest.approx((1.98787, 2.01220), abs=2e-5)
    assert figure(found, "compile_seconds").reason == "compiled once"
    assert str(summary(found)) == "All 4 numbers that could be judged came out as expected."
    assert replay_status(found) == 0
    assert found.label == "inductor" and not found.differs


def test_a_slower_backend_is_found_and_a_slower_machine_no_fault_of_the_backend(store: Store):
    found = load_replay(store, AGAIN["backend"])
    assert verdicts(found)["speedup"] == verdicts(found)["step_seconds"] == "outside"
    assert "2 of 4 numbers came out as expected, all but: speedup, step time" in str(summary(found))
    assert replay_status(found) == 6
    found = load_replay(store, AGAIN["machine"])
    assert verdicts(found)["step_seconds"] == verdicts(found)["speedup"] == "inside"
    step = figure(found, "step_seconds")
    assert step.recorded == pytest.approx(0.1) and step.again == pytest.approx(0.15)
    assert "takes 50.0 % longer than in the recording" in replay_report(found)


@pytest.mark.parametrize("name", ["peak_memory_bytes", "final_loss", "memory within the margin"])
def test_other_memory_and_another_loss_are_found(store: Store, name: str):
    found = verdicts(load_replay(store, AGAIN[name]))
    outside = [key for key, verdict in found.items() if verdict == "outside"]
    assert outside == ([] if name == "memory within the margin" else [name])


def test_compiling_is_judged_by_what_else_was_compiled_twice_on_the_machine(data_dir: DataDir):
    """Two other pairs: ln(3.3 / 3) = 0.0953 and 0, so s^2 = 0.0953^2 / 2 / 2 with 2 degrees of
    freedom, and 3 s may become 3 s x exp(4.303 x sqrt(2) x 0.04766) = 4.01 s."""
    for pair, seconds in enumerate((4.0, 3.3, 3.0, 30.0)):
        first, again = IDS[2 * pair : 2 * pair + 2]
        machine = TORCH_2_14 if pair == 3 else {}
        record(data_dir, first, **machine)
        record(data_dir, again, first, compile_seconds=seconds, **machine)
    with Store.in_memory(data_dir) as store:
        found = figure(load_replay(store, IDS[1]), "compile_seconds")
    assert (found.verdict, found.reason) == ("inside", None)
    assert found.high == pytest.approx(3 * 1.33651, rel=1e-3)


def test_another_machine_and_another_torch_are_said_and_compiling_is_not_judged(store: Store):
    found = load_replay(store, AGAIN["elsewhere"])
    assert {one.name: one.values for one in found.differs} == {
        "host": ("box", "other"), "versions.torch": ("2.13.0", "2.14.0"),
    }  # fmt: skip
    assert elsewhere(found) and "differ from the recording's" in replay_report(found)
    assert figure(found, "compile_seconds").reason == "compiled once"
    assert figure(found, "speedup").verdict == "inside"
    assert "versions.torch" in replay_report(found)


def test_replays_are_found_from_what_they_replay_and_outlive_that(store: Store):
    assert figure(load_replay(store, OTHER_TRAINING), "final_loss").reason == "other training"
    assert set(replays_of(store, IDS[0])) == {*AGAIN.values(), OTHER_TRAINING}
    assert replays_of(store, IDS[1]) == []
    for experiment_id, said in ((IDS[0], "measures no other one again"), (ORPHAN, "20250101")):
        with pytest.raises(NotInStore, match=said):
            load_replay(store, experiment_id)
