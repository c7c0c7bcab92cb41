"""The comparison, from run folders to verdicts, against numbers worked out by hand."""

import math
import os
import re
import shutil
from dataclasses import fields, replace
from typing import Any

import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import FOUND_IN_SCRIPT
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.worker.event_log import EventLog
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.comparison.run_numbers import RunNumbers
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.profile.explanation import explain
from breakeven.storage.terminal.correctness import correctness_report
from breakeven.storage.terminal.report import explain_report, report
from breakeven.storage.words.answer_sentence import break_even_reason, speed_reason
from breakeven.storage.words.parity import parity_text
from tests.helpers.comparisons import compared, minor_warnings_of, row_of, warnings_of
from tests.helpers.device_journals import ON_CUDA
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)

SPEC = experiment_spec(num_steps=80, block_steps=10)
LOSSES = falling_losses(80)


def record(
    data_dir: DataDir,
    label: str,
    spec: ExperimentSpec = SPEC,
    environment: dict[str, Any] | None = None,
) -> Recording:
    return Recording(data_dir.runs, label, spec).claim().start(environment=environment)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    data_dir = DataDir(tmp_path_factory.mktemp("finished"))
    record_experiment(data_dir.runs, SPEC)
    return compared(data_dir)


def test_a_wait_every_fourth_step_is_part_of_the_step_time(data_dir: DataDir) -> None:
    """Four loader processes deliver four batches at once: (3 x 0.1 + 0.5) / 4 = 0.2 s."""
    run = record(data_dir, "baseline")
    for _ in range(5):
        run.block([0.1, 0.1, 0.1, 0.5] * 2, [1.0] * 8)
    measured = compared(data_dir).result_of("baseline").measured
    assert measured.step_seconds == pytest.approx(0.2)
    assert measured.samples_per_second == pytest.approx(40)  # 8 / 0.2


def test_a_finished_comparison_by_hand(finished: Comparison) -> None:
    comparison = finished
    assert [result.label for result in comparison.results] == ["baseline", "control", "inductor"]
    assert comparison.baseline == "baseline"
    assert comparison.noise_floor == 0.0
    assert warnings_of(comparison) == ()

    baseline = comparison.result_of("baseline")
    assert baseline.measured.step_seconds == pytest.approx(0.2)
    assert baseline.measured.samples_per_second == pytest.approx(40)  # 8 / 0.2
    assert baseline.measured.tokens_per_second == pytest.approx(5120)  # 8 x 128 / 0.2
    assert (baseline.speedup, baseline.speed_verdict, baseline.parity) == (None, None, None)
    assert baseline.break_even is None
    assert (baseline.measured.compile_seconds, baseline.measured.graph_breaks) == (None, None)
    # The last 8 of 80 steps: 2 - s / 79 for s = 72 ... 79, mean 2 - 75.5 / 79.
    assert baseline.measured.final_loss == pytest.approx(2 - 75.5 / 79)
    assert (baseline.measured.accuracy, baseline.measured.eval_loss) == (0.8, 1.0)

    inductor = comparison.result_of("inductor")
    assert inductor.speedup.median == pytest.approx(2.0)
    assert inductor.speedup.n == 7  # of 8 blocks the first one is not steady
    assert inductor.p_holm == pytest.approx(0.0)  # all rounds are alike
    assert inductor.speed_verdict == "faster"
    assert inductor.measured.compile_seconds == pytest.approx(3.0)  # 3.1 - 1 x 0.1
    assert inductor.break_even.steps == pytest.approx(30)  # 3 / (0.2 - 0.1)
    assert inductor.break_even.seconds == pytest.approx(6)  # 3 + 30 x 0.1
    assert inductor.break_even.epochs == pytest.approx(0.375)  # 30 / 80
    assert inductor.parity.verdict == "holds"


def test_what_seven_rounds_tell_of_four_backends(data_dir: DataDir) -> None:
    """The sign test could not tell one that takes thrice as long: 4 x 2 / 2^7 = 0.0625."""
    names = ("inductor", "eager", "aot_eager", "cudagraphs")
    spec = experiment_spec(80, backends=names)
    rounds = {
        "inductor": [0.3, 0.2, 0.55, 0.3, 0.21, 0.4, 0.3, 0.25],
        "eager": [0.1, 0.12, 0.095, 0.13, 0.11, 0.09, 0.14, 0.12],
    }
    for label in ("baseline", "control", *names):
        record(data_dir, label, spec).blocks(rounds.get(label, [0.1] * 8), LOSSES).end()
    comparison = compared(data_dir)
    slow, unsure, control = map(comparison.result_of, ("inductor", "eager", "control"))
    assert slow.p_holm is not None and slow.p_holm < 0.05
    assert (slow.speed_verdict, slow.break_even_verdict) == ("slower", None)
    assert (control.p_holm, control.speed_verdict, control.parity) == (None, None, None)
    assert unsure.speed_verdict == "unsure" and unsure.more_rounds is not None
    (reason,) = [line for line in report(comparison).splitlines() if line.startswith("speed of")]
    assert reason.endswith(f"may be chance; about {unsure.more_rounds} more rounds would decide.")
    one_more = speed_reason(replace(unsure, more_rounds=1))
    assert one_more.endswith("; about one more round would decide.")


def test_only_rounds_that_both_spent_steadily_are_paired(data_dir: DataDir) -> None:
    baseline = record(data_dir, "baseline")
    inductor = record(data_dir, "inductor")
    for _ in range(8):
        baseline.block([0.2] * 10, [1.0] * 10)
    # Round 0 is the first, 3 compiles again, 5 was cut short: left are 1, 2, 4, 6, 7.
    for number in range(8):
        size = 4 if number == 5 else 10
        seconds = [0.1] * size
        seconds[0] += 2.0 if number in (0, 3) else 0.0
        inductor.block(seconds, [1.0] * size, compiled=[0] if number in (0, 3) else ())
    baseline.end()
    inductor.end()
    result = compared(data_dir).result_of("inductor")
    assert (result.speedup.n, result.speedup.median) == (5, pytest.approx(2.0))
    assert result.speed_verdict == "unsure"
    assert result.measured.compile_seconds == pytest.approx(4.0)  # 2 x 2.1 - 2 x 0.1


def test_memory_is_that_of_steady_blocks_or_reserved_on_a_device(data_dir: DataDir) -> None:
    on_cpu = record(data_dir, "inductor")
    on_cpu.block([3.0], [1.0], compiled=[0], peak_memory_bytes=900)
    on_cpu.block([0.1], [1.0], peak_memory_bytes=500).block([0.1], [1.0], peak_memory_bytes=600)
    reserving = record(data_dir, "baseline", environment=ON_CUDA)
    unknown = record(data_dir, "control", environment=ON_CUDA)
    for peak, reserved in ((900, 2000), (500, 1100), (600, 1500)):
        reserving.block([0.1], [1.0], peak_memory_bytes=peak, reserved_memory_bytes=reserved)
        unknown.block([0.1], [1.0], peak_memory_bytes=100)
    comparison = compared(data_dir)
    measured = {result.label: result.measured for result in comparison.results}
    assert measured["inductor"].peak_memory_bytes == 600
    assert measured["inductor"].compile_peak_memory_bytes == 900
    needed = {
        label: (numbers.peak_memory_bytes, numbers.allocated_memory_bytes)
        for label, numbers in measured.items()
        if label != "inductor"
    }
    assert needed == {"baseline": (1500, 600), "control": (None, 100)}
    assert comparison.table()["peak_memory_bytes"].iloc[0] == 1500


def test_graph_breaks_that_several_devices_cause_do_not_count(data_dir: DataDir) -> None:
    """Of the second backend one is of the code; five where buckets of DDP end, four in what wraps
    the model."""
    spec = replace(SPEC, backends=("inductor", "eager"))
    recording = record(data_dir, "inductor", spec).block([3.0], [1.0], compiled=[0])
    for reason, guards in ((None, 7), ("tensor size changed", 5), (None, None)):
        recording.log.append(
            "compile_metrics", step=0, compile_id="0/0", recompile_reason=reason, guards=guards
        )
    for step, reason, location, count in (
        (0, "print", "a.py:1", 2),
        (0, "other", "a.py:9", 1),
        (1, "print", "a.py:1", 1),
    ):
        recording.log.append(
            "graph_break", step=step, reason=reason, location=location, count=count
        )
    recording.log.flush()
    spread = record(data_dir, "eager", spec).block([3.0], [1.0], compiled=[0])
    for reason, stopped_at, count in (
        ("print", "net.py:1", 1),
        (
            "DDPOptimizer intentional graph-break (See Note [DDPOptimizer]).",
            "torch/_dynamo/backends/distributed.py:0",
            5,
        ),
        ("Unsupported method call", "torch/nn/parallel/distributed.py:1500", 1),
        (
            "skipped: the function `DistributedDataParallel._inside_ddp_forward`",
            "/usr/lib/python3.12/contextlib.py:105",
            2,
        ),
        ("skipped", "torch/distributed/fsdp/_fully_shard/_fsdp_state.py:60", 1),
    ):
        spread.log.append(
            "graph_break",
            step=0,
            reason=reason,
            location="net.py:1",
            stopped_at=stopped_at,
            count=count,
        )
    spread.log.flush()
    comparison = compared(data_dir)
    measured = comparison.result_of("inductor").measured
    assert (measured.graph_breaks, measured.recompiles) == (4, 1)
    assert (measured.distinct_graph_breaks, measured.guards) == (2, 12)
    measured = comparison.result_of("eager").measured
    assert (measured.graph_breaks, measured.distinct_graph_breaks) == (1, 1)


def test_buffers_that_only_some_runs_have_are_named_and_leave_parity_as_it_is(
    data_dir: DataDir,
) -> None:
    for label in ("baseline", "control", "inductor"):
        masks = ["h.*.attn.mask"] if label == "inductor" else []
        run = Recording(data_dir.runs, label, SPEC).start(buffers=["norm.mean", *masks])
        run.blocks([0.2] * 8, LOSSES)
    comparison = compared(data_dir)
    assert comparison.result_of("inductor").value("parity") == "holds"
    differing = "buffers, which are no weights: none (baseline, control), h.*.attn.mask (inductor)"
    assert f"The runs differ in {differing}." in minor_warnings_of(comparison)


def test_runs_with_other_weights_are_not_judged_for_parity(data_dir: DataDir) -> None:
    record(data_dir, "baseline").blocks([0.2] * 8, LOSSES)
    record(data_dir, "control").blocks([0.2] * 8, LOSSES)
    Recording(data_dir.runs, "inductor", SPEC).start(weights_sha256="cc").blocks([0.1] * 8, LOSSES)
    comparison = compared(data_dir)
    parity = comparison.result_of("inductor").parity
    assert parity.verdict == "unknown"
    text = "The runs differ in initial weights: aa (baseline, control), cc (inductor)."
    assert text in warnings_of(comparison)


@pytest.mark.parametrize(("controls", "verdict"), [(1, "unknown"), (2, "broken")])
def test_two_controls_settle_parity_in_bf16(data_dir: DataDir, controls: int, verdict: str) -> None:
    """The band is 4 x 0.001 wide on either side; 0.012 is three times that."""
    training = TrainingSpec(batch_size=8, precision="bf16")
    spec = experiment_spec(80, controls=controls, training=training)
    for arm in spec.arms:
        off = 0.001 if arm.role == "control" else 0.0
        losses = [loss + off for loss in LOSSES]
        losses[30] += 0.012 if arm.role == "backend" else 0.0
        recording = Recording(data_dir.runs, arm.label, spec).claim().start()
        recording.blocks([0.2] * 8, losses).end()
    assert compared(data_dir).result_of("inductor").parity.verdict == verdict


def test_a_missing_control_and_a_backend_that_never_made_a_step_are_named(
    data_dir: DataDir,
) -> None:
    record(data_dir, "baseline").blocks([0.2] * 8, LOSSES).end()
    record(data_dir, "inductor").end(RunState.FAILED, "exit status 1")
    comparison = compared(data_dir)
    assert "control's run folder is missing" in " ".join(warnings_of(comparison))
    for state, why in (
        ("queued", "has recorded no step yet"),
        ("out of memory", "recorded no step"),
    ):
        control = Recording(data_dir.runs, "control", SPEC)
        if state != "queued":
            control.claim().start().end(RunState.OUT_OF_MEMORY, "too big")
        said = (
            f"The control {why} ({state}): neither this machine's noise nor parity can be judged."
        )
        assert said in warnings_of(compared(data_dir))
    assert comparison.result_of("inductor").speed_verdict == "failed"
    line = next(row for row in report(comparison).splitlines() if row.startswith("inductor"))
    assert re.findall("inductor|failed", line) == ["inductor", "failed", "failed", "failed"]
    assert line.count("\N{EN DASH}") == 8


def test_nothing_is_said_of_parity_before_the_first_step(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=40)
    for label in ("baseline", "control"):
        Recording(data_dir.runs, label, spec).claim().start().blocks([0.2] * 2, falling_losses(20))
    here = ProcessIdentity.from_pid(os.getpid())
    run = Recording(data_dir.runs, "inductor", spec).claim(here).start()
    waiting = row_of(compared(data_dir), "inductor")
    assert waiting.state == RunState.RUNNING
    assert waiting.parity is None and parity_text(waiting.parity) == DASH
    run.blocks([0.2] * 2, falling_losses(20))
    assert row_of(compared(data_dir), "inductor").parity is not None


def test_a_baseline_that_learned_nothing_proves_nothing(data_dir: DataDir) -> None:
    for label in ("baseline", "control", "inductor"):
        record(data_dir, label).blocks([0.2] * 8, [1.386] * 80).evaluation(0.21).end()
    parity = compared(data_dir).result_of("inductor").parity
    assert parity.verdict == "nothing learned"


def test_a_noisy_machine_is_said_to_be_noisy(data_dir: DataDir) -> None:
    noisy = [0.2] + [0.16, 0.24] * 5
    spec = experiment_spec(num_steps=110)
    record(data_dir, "baseline", spec).blocks([0.2] * 11, falling_losses(110)).end()
    record(data_dir, "control", spec).blocks(noisy, falling_losses(110)).end()
    record(data_dir, "inductor", spec).blocks([0.19] * 11, falling_losses(110)).end()
    comparison = compared(data_dir)
    # Ratios 0.2/0.16 = 1.25 and 0.2/0.24 = 0.83, five of each: the interval spans both.
    assert comparison.noise_floor == pytest.approx(0.25)
    assert any("noisy" in warning for warning in warnings_of(comparison))
    # 0.2/0.19 = 1.05 lies within the noise, which is too much to call anything the same.
    assert comparison.result_of("inductor").speed_verdict == "unsure"


def test_warnings_name_what_a_reader_must_know(data_dir: DataDir) -> None:
    spec = experiment_spec(
        num_steps=40, backends=("inductor", "eager"), schedule="sequential", fallback_of="earlier"
    )
    for label, losses in (("baseline", falling_losses(40)), ("control", [math.nan] * 40)):
        recording = Recording(data_dir.runs, label, spec).start(notes=["Dropout is off."])
        recording.blocks([0.2] * 4, losses).end()
    other = {"versions": {"torch": "2.11.0"}, "variables": {"TORCH_LOGS": "+dynamo"}}
    inductor = Recording(data_dir.runs, "inductor", spec)
    inductor.start(environment=other, notes=["Dropout is off.", "inductor: memory is more."])
    inductor.end(RunState.FAILED, "exit status 1")
    Recording(data_dir.runs, "eager", spec)
    comparison = compared(data_dir)
    assert minor_warnings_of(comparison) == ("Dropout is off.",)
    assert [warning.kind for warning in comparison.serious_warnings] == [
        "ended early",
        "loss not finite",
        "unfinished",
        *["different setting"] * 3,
        "fallback",
        "sequential",
        "few rounds",
        "recorded",
    ]
    warnings = warnings_of(comparison)
    assert warnings[0] == "inductor failed before its first step: exit status 1."
    assert warnings[2].endswith("are preliminary: eager (queued, 0 of 40 steps).")
    assert warnings[3].startswith(
        "The runs differ in TORCH_LOGS: not set (baseline, control), +dynamo"
    )
    assert warnings[4].endswith("version of torch: 2.13.0 (baseline, control), 2.11.0 (inductor).")
    assert warnings[8].endswith("there is no interval: control (3). Train for more steps.")
    printed = report(comparison).splitlines()
    assert printed[-2:] == ["warning: inductor: memory is more.", "note: Dropout is off."]


def test_a_run_without_a_step_is_not_blamed_for_knowing_less_of_its_script(
    data_dir: DataDir,
) -> None:
    full = f"{FOUND_IN_SCRIPT}: a step ends with each step of SGD; the model to compile is Net."
    for label in ("baseline", "control"):
        run = Recording(data_dir.runs, label, SPEC).start(notes=[full])
        run.blocks([0.2] * 8, LOSSES).end()
    part = f"{FOUND_IN_SCRIPT}: the model to compile is Net."
    stopped = Recording(data_dir.runs, "inductor", SPEC).start(notes=[part, "Dropout is off."])
    stopped.end(RunState.CANCELLED, "stopped")
    comparison = compared(data_dir)
    assert full in minor_warnings_of(comparison)
    assert part not in minor_warnings_of(comparison) + warnings_of(comparison)
    assert "Dropout is off." in warnings_of(comparison), "which only this run says"


def test_a_terminal_obeys_no_name_and_shows_it_on_one_line(data_dir: DataDir) -> None:
    spec = replace(SPEC, name="mine\nFAIL all\x1b[2J")
    record_experiment(data_dir.runs, spec)
    with Store.in_memory(data_dir) as store:
        texts = [
            report(compare(store, EXPERIMENT_ID)),
            explain_report(explain(store, EXPERIMENT_ID)),
            correctness_report(replace(spec, scenario="accuracy"), []),
        ]
    assert all(text.startswith(r"mine\nFAIL all\x1b[2J") for text in texts)


def test_a_missing_baseline_is_said_and_breaks_nothing(data_dir: DataDir) -> None:
    record(data_dir, "inductor").blocks([0.1] * 8, LOSSES).end()
    comparison = compared(data_dir)
    assert comparison.result_of("inductor").parity is not None
    assert warnings_of(comparison)[0] == (
        "Runs whose folder is missing or unreadable have no numbers: baseline, control. "
        "Nothing can be compared with that baseline."
    )


def test_every_number_has_a_column_of_its_name(finished: Comparison) -> None:
    numbers = {field.name for field in fields(RunNumbers)} - {"num_steps", "metrics"}
    table = finished.table().set_index("label")
    assert numbers <= set(table.columns) - {"role", "backend", "state"} <= set(METRICS)
    inductor = finished.result_of("inductor")
    for name in numbers:
        assert table.at["inductor", name] == inductor.value(name), name
        assert inductor.value(name) == getattr(inductor.measured, name), name
    assert table["speedup"].tolist() == [None, 1.0, pytest.approx(2.0)]
    assert table["effect_size"].tolist() == [None, 0.0, 1.0]  # faster in each of the rounds
    # All rounds agree, so that any change would show.
    assert table["detectable_effect"].tolist() == [None, 0.0, pytest.approx(0.0)]
    written = [METRICS["break_even_steps"].format(steps) for steps in table["break_even_steps"]]
    assert written == ["\N{EN DASH}", "\N{EN DASH}", "30"]


def test_a_break_even_is_a_number_only_of_a_backend_that_is_faster(data_dir: DataDir) -> None:
    """0.1 / 0.099 = 1.01 is within the margin of 2 %; 3 s / 0.001 s = 3,000 steps."""
    spec = replace(SPEC, backends=("inductor", "eager"))
    for label, seconds in (
        ("baseline", 0.1),
        ("control", 0.1),
        ("inductor", 0.2),
        ("eager", 0.099),
    ):
        compiling = 3.0 if label in spec.backends else 0.0
        record(data_dir, label, spec).blocks([seconds] * 8, LOSSES, compiling).end()
    comparison = compared(data_dir)
    for place, (label, verdict) in enumerate((("inductor", "slower"), ("eager", "same")), 2):
        result = comparison.result_of(label)
        assert (result.speed_verdict, result.break_even_verdict) == (verdict, "never")
        steps = comparison.table().iloc[place]["break_even_steps"]
        assert result.value("break_even_steps") == steps == math.inf
        assert re.search(rf"{verdict} +3\.00 s +never", report(comparison))
    assert METRICS["break_even_steps"].format(math.inf) == "never"


def test_compiling_that_was_timed_once_is_said_beside_its_break_even(finished: Comparison) -> None:
    said = (
        "Compile latency of inductor was measured once: the interval of break-even includes "
        "the uncertainty of the saving, but not the variation of compile "
        "latencies."
    )
    assert said in minor_warnings_of(finished) and f"minor warning: {said}" in report(finished)
    assert said == break_even_reason(finished.result_of("inductor"))


def shown(data_dir: DataDir, experiment: str = EXPERIMENT_ID) -> int:
    return main(["show", "--judged", "--wide", experiment, "--data-folder", str(data_dir.path)])


def test_the_command_prints_a_table_of_what_is_there(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(data_dir) == 2
    assert "no such folder" in capsys.readouterr().err
    record_experiment(data_dir.runs, SPEC)
    assert shown(data_dir, "nothing") == 2
    assert "no experiment 'nothing'" in capsys.readouterr().err
    with Store.open(data_dir):  # as the dashboard would; the command reads beside it
        assert shown(data_dir) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "test: builtin:bert-tiny on builtin:reviews, float32, cpu, 80 steps"
    assert lines[0].startswith("Use inductor for 80 steps: 11 s instead of 16 s, compiling includ")
    header, _, _, _, inductor = lines[4:9]
    assert header.split()[:3] == ["run", "state", "step"]
    assert "2.00x (2.00 to 2.00) faster" in " ".join(inductor.split())
    assert "3.00 s    30 steps" in inductor
    assert inductor.endswith("matches")
    assert len({len(line) for line in lines[4:9]}) == 1  # aligned
    assert "break-even of inductor: 30 steps (30 to 30), about 6.00 s or 0.4 epochs" in lines


@pytest.mark.parametrize(
    ("spec", "offset", "has_timed_out", "status"),
    [
        (SPEC, 0.0, True, 1),
        (SPEC, 1.0, True, 3),  # which outranks the control's time limit
        (experiment_spec(80, controls=0), 0.0, False, 4),
        (experiment_spec(80, backends=()), 0.0, False, 4),
    ],
    ids=["a run did not finish", "parity is broken", "no control", "no backend"],
)
def test_the_exit_status_tells_what_a_comparison_comes_to(
    data_dir: DataDir,
    capsys: pytest.CaptureFixture[str],
    spec: ExperimentSpec,
    offset: float,
    has_timed_out: bool,
    status: int,
) -> None:
    record_experiment(data_dir.runs, spec, backend_offset=offset)
    if has_timed_out:
        late = Exit.now(RunState.TIMEOUT, "too slow", None)
        data_dir.run_dir(f"{EXPERIMENT_ID}.control").write_exit(late)
    assert shown(data_dir) == status
    said = "control was stopped by its time limit after the last of its 80 steps: too slow."
    assert (said in capsys.readouterr().out) is has_timed_out


FORWARD = {"compile_id": "0/0", "function": "forward", "file": "/home/me/net.py", "line": 6}
LOOP = "Call to `print`.\n  Explanation: ...\n\ngraph break in loop"
BEHIND = {"compile_id": "1/0", "function": "torch_dynamo_resume_in_forward_at_7", "graph_ops": None}
LIMIT = {"compile_id": "0/8", "failure": "Dynamo recompile limit exceeded\n  Explanation"}
NOTHING = {**FORWARD, "graph_ops": 0}
FRAMES: dict[str, list[dict[str, Any]]] = {
    "(net.py:6) without a compiler, because the compiler gave up there: Call to `print`.": [
        {**FORWARD, "failure": LOOP},
        {"compile_id": "1/0", "function": "relu"},
    ],
    "gave up there and compiled nothing else: ": [{**FORWARD, "failure": LOOP}],
    # Before the break at which it was given up there was nothing.
    "the rest of forward without a compiler, because the compiler gave up there and compiled "
    "nothing else: ": [NOTHING, {**BEHIND, "failure": LOOP}],
    "inductor-case_3 runs some calls of forward (net.py:6) without a compiler, because the "
    "compiler gave up there: Dynamo recompile limit exceeded.": [
        FORWARD,
        {**FORWARD, "compile_id": "0/1"},
        LIMIT,
    ],
    "nothing captured": [NOTHING, BEHIND],
    "captured later": [NOTHING, {**BEHIND, "graph_ops": 4}],
    "operations not counted": [FORWARD],
}


def test_what_the_compiler_gave_up_on_or_found_nothing_in_is_named(data_dir: DataDir) -> None:
    names = (*(f"inductor:case={number}" for number in range(len(FRAMES))), "eager")
    spec = experiment_spec(80, backends=names)
    record_experiment(data_dir.runs, spec)
    for number, frames in enumerate(FRAMES.values()):
        run = data_dir.run_dir(f"{EXPERIMENT_ID}.inductor-case_{number}")
        log = EventLog(run.events_file)
        for frame in frames:
            log.append("compile_metrics", step=0, phase="training", **frame)
        log.close()
    shutil.rmtree(data_dir.run_dir(f"{EXPERIMENT_ID}.eager").path)
    run = Recording(data_dir.runs, "eager", spec).claim().start()  # No compilation begins.
    run.captures = False
    run.blocks([0.2] * 8, LOSSES).evaluation(0.8).end()
    warnings = warnings_of(compared(data_dir))
    given_up = [line for line in warnings if "without a compiler" in line]
    assert len(given_up) == 4, "functions that were compiled are no warning"
    for number, (warning, end) in enumerate(zip(given_up, FRAMES, strict=False)):
        assert warning.startswith(f"inductor-case_{number} runs ") and end in warning
    assert [line for line in warnings if "as the baseline" in line] == [
        "Nothing was compiled in inductor-case_4, eager: the compiler found nothing in the model "
        "that it could capture, so these runs are the same as the baseline."
    ]


@pytest.mark.parametrize(
    ("compiled", "steps", "begins", "ends"),
    [
        # 16 blocks of 10 steps: no frame was compiled after the first step.
        (
            [True] * 16,
            (0,),
            "inductor kept capturing CUDA graphs until its end, in 32 of 160 steps,"
            " so it has no steady block. With compiling, a step took 900 ms, the baseline's 200 "
            "ms. ",
            "More steps would hardly help.",
        ),
        ([True] * 6, (0, 50), "inductor kept compiling code until its end, in 12 of 60 steps", ""),
        ([True] * 5 + [False], (), "Fewer than 6 rounds", "Train for more steps."),
        ([True] * 5, (), "Fewer than 6 rounds", "Train for more steps."),
    ],
)
def test_a_backend_that_compiles_to_its_end_is_called_that(
    data_dir: DataDir, compiled: list[bool], steps: tuple[int, ...], begins: str, ends: str
) -> None:
    """Two steps of these blocks took 0.9 s and compiled, the other eight 0.1 s; a step of the
    baseline took 0.2 s."""
    spec = experiment_spec(10 * len(compiled), controls=0)
    losses = falling_losses(spec.num_steps)
    record(data_dir, "baseline", spec).blocks([0.2] * len(compiled), losses).end()
    run = record(data_dir, "inductor", spec)
    for step in steps:
        run.log.append("compile_metrics", phase="training", step=step, **FORWARD)
    for number, compiles in enumerate(compiled):
        seconds = [0.9] * 2 + [0.1] * 8 if compiles else [0.1] * 10
        run.block(seconds, losses[10 * number :][:10], compiled=(0, 1) if compiles else ())
    run.end()
    warnings = warnings_of(compared(data_dir))
    (warning,) = (line for line in warnings if line.startswith(("inductor ", "Few")))
    assert warning.startswith(begins) and warning.endswith(ends)
