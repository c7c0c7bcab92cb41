"""What is said of a script's runs: whether they saw the same, and did as much."""

from typing import Any

import pytest

from runner.folders.data_dir import DataDir
from runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from storage.comparison.comparison import compare
from storage.comparison.results import Comparison
from storage.index.store import Store
from storage.terminal.caution_words import caution_words
from storage.terminal.parity_words import parity_words
from storage.terminal.report import report
from tests.helpers.journals import EXPERIMENT_ID, Recording, falling_losses
from tests.helpers.told import warnings_of

pytestmark = pytest.mark.heavy

SPEC = ExperimentSpec(
    name="mine", task="script", model=ModelSpec(source="script:/home/me/train.py"),
    data=DataSpec(source="script"), backends=("inductor",), block_steps=10,
)  # fmt: skip
LOSSES = falling_losses(80)
ALIKE = {0: "a", 1: "b", 10: "c", 20: "d"}
TORCH = {"torch": "x", "python": "y", "cuda": "z"}


def record(
    data_dir: DataDir,
    label: str,
    inputs: dict[int, str] | None = None,
    *,
    offset: float = 0.0,
    steps: int = 80,
    compile_seconds: float = 0.0,
    random: dict[str, str] | None = None,
    **workload: Any,
) -> None:
    """A run of 80 steps; `inputs` are hashes by step."""
    run = Recording(data_dir.runs, label, SPEC).claim().start(num_steps=steps, **workload)
    for step, sha256 in (ALIKE if inputs is None else inputs).items():
        run.log.append("inputs", step=step, sha256=sha256, random=random or TORCH)
    losses = [loss + offset for loss in LOSSES[:steps]]
    run.blocks([0.1] * (steps // 10), losses, compile_seconds)
    run.end()


def compared(data_dir: DataDir) -> Comparison:
    with Store.in_memory(data_dir) as store:
        return compare(store, EXPERIMENT_ID)


def parity(data_dir: DataDir) -> tuple[str, str]:
    """Verdict of the backend, and why."""
    found = compared(data_dir).results[-1].parity
    assert found is not None
    return found.verdict, str(parity_words(found))


def test_runs_that_saw_the_same_are_judged_by_their_losses(data_dir: DataDir) -> None:
    record(data_dir, "baseline")
    record(data_dir, "control", offset=1e-5)
    record(data_dir, "inductor", offset=1e-5, compile_seconds=3.0)
    assert parity(data_dir)[0] == "holds"
    comparison = compared(data_dir)
    assert report(comparison).startswith("mine: train.py, cpu\n")
    assert warnings_of(comparison) == ()


def test_a_backend_that_saw_other_data_is_not_judged_and_the_step_is_named(
    data_dir: DataDir,
) -> None:
    record(data_dir, "baseline")
    record(data_dir, "control", offset=1e-5)
    other = {**ALIKE, 10: "other", 20: "other still"}
    record(data_dir, "inductor", other, offset=0.5)
    verdict, why = parity(data_dir)
    assert verdict == "unknown"
    assert why.startswith(
        "the runs saw other data from step 10 on or earlier, but not before step 1: all generators "
        "stood alike"
    )


def test_where_each_step_was_looked_at_the_first_other_one_is_known(data_dir: DataDir) -> None:
    record(data_dir, "baseline")
    record(data_dir, "control", offset=1e-5)
    record(data_dir, "inductor", {**ALIKE, 1: "other"}, random={**TORCH, "python": "elsewhere"})
    _, why = parity(data_dir)
    assert why.startswith("the runs saw other data from step 1 on: the random numbers of python")


def test_numbers_that_compiled_code_draws_in_its_own_way_are_nobodys_fault(
    data_dir: DataDir,
) -> None:
    record(data_dir, "baseline")
    record(data_dir, "control", offset=1e-5)
    record(data_dir, "inductor", random={**TORCH, "cuda": "elsewhere"}, offset=1e-5)
    assert parity(data_dir)[0] == "holds"


def test_a_script_that_never_repeats_itself_is_blamed_before_any_backend(
    data_dir: DataDir,
) -> None:
    record(data_dir, "baseline")
    record(data_dir, "control", {**ALIKE, 20: "by the clock"}, offset=0.3)
    record(data_dir, "inductor", offset=0.4)
    verdict, why = parity(data_dir)
    assert verdict == "unknown"
    assert why.startswith("without a compiler, too, two runs of the script saw other data")


def test_what_a_function_without_tensors_was_given_nobody_knows(data_dir: DataDir) -> None:
    record(data_dir, "baseline", {})
    record(data_dir, "control", {}, offset=1e-5)
    record(data_dir, "inductor", {}, offset=0.5)
    assert parity(data_dir)[0] == "broken"  # by its losses


def test_runs_that_made_other_numbers_of_steps_or_ran_other_code_are_said_to(
    data_dir: DataDir,
) -> None:
    record(data_dir, "baseline", code_sha256="one")
    record(data_dir, "control", offset=1e-5, code_sha256="one")
    record(data_dir, "inductor", steps=60, code_sha256="other", compile_seconds=1.0)
    lengths, code, *_ = warnings_of(compared(data_dir))
    assert "different numbers of steps: 80 (baseline, control), 60 (inductor)" in lengths
    assert code.startswith("The runs differ in the script and its files: one (baseline, control)")


def test_a_backend_that_compiled_nothing_is_named(data_dir: DataDir) -> None:
    record(data_dir, "baseline")
    record(data_dir, "control", offset=1e-5)
    record(data_dir, "inductor")
    (warning,) = warnings_of(compared(data_dir))
    assert warning.startswith("Nothing was compiled in inductor")


@pytest.mark.parametrize(("told", "holds"), [("bf16", True), ("float32", False), ("odd", False)])
def test_rounding_is_allowed_for_by_the_precision_that_the_baseline_found(
    data_dir: DataDir, told: str, holds: bool
) -> None:
    """A difference of 0.08 % of the first loss: bf16 rounds so, float32 does not."""
    record(data_dir, "baseline", precision=told)
    record(data_dir, "control", offset=1e-5)
    record(data_dir, "inductor", offset=0.0015, compile_seconds=1.0)
    assert (parity(data_dir)[0] == "holds") is holds


def test_an_evaluation_of_nobody_knows_how_many_samples_breaks_nothing(data_dir: DataDir) -> None:
    for label, offset in (("baseline", 0.0), ("control", 1e-5), ("inductor", 1e-5)):
        run = Recording(data_dir.runs, label, SPEC).claim().start(num_steps=80)
        run.blocks([0.1] * 8, [loss + offset for loss in LOSSES])
        run.log.append("evaluation", epoch=0, step=80, split="validation", compiled=False, loss=1.0,
                       metrics={}, accuracy=None)  # fmt: skip
        run.end()
    assert parity(data_dir)[0] == "holds"


def test_operations_and_precision_hold_of_all_runs_though_only_the_baseline_finds_them(
    data_dir: DataDir,
) -> None:
    device = {"device_name": "NVIDIA H100 80GB HBM3"}
    found = {"precision": "bf16", "flops_per_step": 4.947e13}
    record(data_dir, "baseline", environment=device, **found)
    record(data_dir, "inductor", environment=device, compile_seconds=3.0)
    told = {one.label: one.measured for one in compared(data_dir).results}
    assert told["inductor"].flops_per_second == pytest.approx(4.947e14)  # steps of 0.1 s
    assert told["inductor"].peak_share == pytest.approx(0.5)  # of 989.4 TFLOPS


def test_operations_that_nobody_counts_are_named_and_long_notes_cut(data_dir: DataDir) -> None:
    told = {"notes": ["y" * 3000 + "\u202e"], "uncounted": ["lstm", "\u202eevil"]}
    record(data_dir, "baseline", **told)
    record(data_dir, "control", notes=told["notes"], offset=1e-5)
    record(data_dir, "inductor", notes=told["notes"], compile_seconds=3.0)
    comparison = compared(data_dir)
    long, operations = (str(caution_words(one)) for one in comparison.notes)
    assert len(long) == 300 and long.endswith("y ...")
    assert "nobody counts those of lstm, \\u202eevil" in operations
    assert warnings_of(comparison) == ()


def test_of_a_script_whose_precision_nobody_found_no_share_of_the_peak_is_known(
    data_dir: DataDir,
) -> None:
    device = {"device_name": "NVIDIA H100 80GB HBM3"}
    record(data_dir, "baseline", environment=device, flops_per_step=4.947e13, precision=None)
    (found,) = (one.measured for one in compared(data_dir).results)
    assert found.flops_per_second is not None and found.peak_share is None


def test_a_script_that_began_anew_has_the_compile_latency_of_the_attempt_that_counts(
    data_dir: DataDir,
) -> None:
    record(data_dir, "baseline")
    run = Recording(data_dir.runs, "inductor", SPEC).claim().start(num_steps=80)
    run.blocks([0.1] * 3, LOSSES[:30], 9.0)
    run.resume(0).blocks([0.1] * 8, LOSSES, 3.0)
    run.end()
    assert compared(data_dir).results[-1].measured.compile_seconds == pytest.approx(3.0)
