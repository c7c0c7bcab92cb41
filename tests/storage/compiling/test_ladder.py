"""The ladder: each rung is judged by the one below it, and the first that goes wrong is named."""

from dataclasses import replace

import pytest

from breakeven.runner.arguments.options import read_spec
from breakeven.runner.commands.cli import parser
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.ladder import RUNGS, find_rung, ladder_on, with_ladder
from breakeven.storage.__main__ import main
from breakeven.storage.compiling.ladder import Ladder, find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.terminal.compiling import ladder_report
from breakeven.storage.words.compiling import findings
from breakeven.views.charts.bars import waterfall
from breakeven.views.comparison.compiler_stages import ladder_html
from tests.helpers.correctness_journals import record, tensor
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy  # whole commands over stores of their own: many seconds

NUM_BLOCKS, BLOCK_STEPS = 12, 10
SPEC = experiment_spec(NUM_BLOCKS * BLOCK_STEPS, BLOCK_STEPS, backends=ladder_on("cpu"))
EQUAL = {
    "baseline": 0.2,
    "control": 0.2,
    "eager": 0.2,
    "aot_eager": 0.2,
    "aot_eager_decomp_partition": 0.2,
    "inductor": 0.1,
    "inductor-max-autotune-no-cudagraphs": 0.1,
}
"""Seconds of a step of each run: only Inductor is faster."""


def climb(
    folder: DataDir,
    seconds: dict[str, float] | None = None,
    wrong: tuple[str, ...] = (),
    failed: tuple[str, ...] = (),
    spec: ExperimentSpec = SPEC,
) -> Ladder:
    """A ladder whose runs take that long, whose losses are wrong, or that fail at once."""
    losses = falling_losses(spec.num_steps)
    for label, duration in {**EQUAL, **(seconds or {})}.items():
        run = Recording(folder.runs, label, spec).claim().start()
        if label in failed:
            run.end(RunState.FAILED, "InductorError: no kernel for rsqrt")
            continue
        offset = {"baseline": 0.0, "control": 1e-5}.get(label, 0.5 if label in wrong else 0.0)
        # Of rounds that are all alike an interval would be a point.
        times = [duration * (1 + 1e-3 * (number % 4)) for number in range(NUM_BLOCKS)]
        compiles = 0.0 if label in ("baseline", "control") else 3.0
        run.blocks(times, [loss + offset for loss in losses], compiles)
        run.evaluation(0.8).end()
    with Store.in_memory(folder) as store:
        ladder = find_ladder(store, EXPERIMENT_ID)
        assert find_ladder(store, EXPERIMENT_ID) is ladder, "looked for once"
    assert ladder is not None
    return ladder


def test_other_settings_of_a_backend_are_no_rung():
    for text in (
        "inductor:scope=forward",
        "inductor:epilogue_fusion=false",
        "cudagraphs",
        "inductor:math_attention=reduced",
    ):
        assert find_rung(parse_backend(text)) is None
    assert with_ladder(("cudagraphs", "inductor"), "cpu") == (*ladder_on("cpu"), "cudagraphs")


def test_the_option_asks_for_the_whole_ladder_and_for_what_is_named_beside_it():
    def backends_of(*arguments: str) -> tuple[str, ...]:
        return read_spec(parser().parse_args(["compare", *arguments])).backends

    assert backends_of() == ("inductor:scope=blocks",)
    assert backends_of("--ladder") == ladder_on("cpu")
    on_cuda = backends_of("--ladder", "--device=cuda:0")
    assert on_cuda == ladder_on("cuda:0") and "inductor:mode=reduce-overhead" in on_cuda
    for device, without in (("cpu", "CUDA graphs"), ("cuda:0", None)):
        stood = [find_rung(parse_backend(text)) for text in ladder_on(device)]
        assert stood == [rung for rung in RUNGS if rung.stage != without]
    assert backends_of("--ladder", "--backends=cudagraphs") == (*ladder_on("cpu"), "cudagraphs")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Ladder:
    """AOTAutograd costs 50 ms and autotuning 30; Inductor gains 150."""
    slow = {
        "aot_eager": 0.25,
        "aot_eager_decomp_partition": 0.25,
        "inductor-max-autotune-no-cudagraphs": 0.13,
    }
    return climb(DataDir(tmp_path_factory.mktemp("uneven")), slow)


def test_a_rung_is_timed_against_the_rung_below_it(uneven: Ladder):
    assert {rung.result.label: rung.below for rung in uneven.rungs} == {
        "eager": "baseline",
        "aot_eager": "eager",
        "aot_eager_decomp_partition": "aot_eager",
        "inductor": "aot_eager_decomp_partition",
        "inductor-max-autotune-no-cudagraphs": "inductor",
    }
    ratios = [rung.over_below.median for rung in uneven.rungs if rung.over_below]
    assert ratios == pytest.approx([1, 0.8, 1, 2.5, 0.1 / 0.13])
    verdicts = [rung.verdict for rung in uneven.rungs]
    assert verdicts == ["same", "slower", "same", "faster", "slower"]
    gained = sum(rung.seconds_gained or 0.0 for rung in uneven.rungs)
    highest = uneven.rungs[-1].result.measured.step_seconds
    assert uneven.baseline.measured.step_seconds - gained == pytest.approx(highest)


def test_the_first_rung_that_loses_is_named_with_its_interval(uneven: Ladder):
    """0.25 s after 0.2 s: 50 ms more, 0.25 / 0.2 = 1.25; Inductor's 0.1 s make up for it."""
    (said,) = map(str, findings(uneven))
    assert said.startswith(
        "First stage that is slower: aot_eager (AOTAutograd). A step takes 50.1 ms more than with "
        "eager, which is 1.25x (1.25 to 1.25) as fast."
    )
    assert said.endswith("inductor makes up for this.")
    assert uneven.is_alarming, "nothing makes up for what the highest rung loses"


def test_the_rung_that_loses_most_is_named_beside_the_first_one(data_dir: DataDir):
    ladder = climb(data_dir, {"eager": 0.21, "aot_eager": 0.3})
    assert not ladder.is_alarming, "inductor makes up for both"
    first, most = map(str, findings(ladder))
    assert first.startswith("First stage that is slower: eager (Dynamo)")
    assert most.startswith("Stage that costs most: aot_eager (AOTAutograd)")


def test_a_loss_within_the_noise_is_not_called_one(data_dir: DataDir):
    """1 % more is less than the margin of 2 %, however narrow the interval."""
    ladder = climb(data_dir, {"aot_eager": 0.202})
    assert ladder.first("loses") is None
    (said,) = map(str, findings(ladder))
    assert said == "No stage fails, computes wrong numbers or is slower."


def test_the_rung_that_computes_wrongly_first_is_named(data_dir: DataDir):
    labels = list(EQUAL)[4:]
    ladder = climb(data_dir, wrong=tuple(labels))
    first = ladder.first("differs")
    assert first is not None and first.result.label == labels[0]
    assert f"wrong numbers: {first.result.label} ({first.rung.stage})" in ladder_report(ladder)


def test_a_rung_that_fails_is_named_and_the_next_one_hangs_on_the_one_below(data_dir: DataDir):
    # Its steps take 0.2504 x 1.002 s in the median of eleven blocks, 0.0504 x 1.002 s more.
    ladder = climb(data_dir, {"aot_eager": 0.2504}, failed=("aot_eager_decomp_partition",))
    first, above = ladder.first("fails"), ladder.rungs[3]
    assert first is not None and first.rung.stage == "decompositions"
    assert above.below == "aot_eager" and above.verdict == "faster"
    assert "no kernel for rsqrt" in ladder_report(ladder)
    assert "fails" in ladder_html(ladder) and "InductorError" in ladder_html(ladder)
    figure = waterfall(ladder)
    bars = {
        bar.y[0]: (bar.base[0], bar.x[0])
        for bar in figure.data
        if bar.type == "bar" and bar.base is not None
    }
    begin, length = bars["aot_eager"]
    assert (begin, length) == pytest.approx((200.4, 50.5), rel=0.002)  # ms
    begin, length = bars["inductor"]
    assert (begin, begin + length) == pytest.approx((100.2, 250.9), rel=0.002)
    assert "aot_eager_decomp_partition" not in bars
    texts = dict(zip(figure.data[-1].y, figure.data[-1].text, strict=True))
    assert texts["aot_eager_decomp_partition"] == "fails"
    assert texts["aot_eager"] == "251 ms, 50.5 ms more"


def test_missing_rungs_are_named(data_dir: DataDir, capsys: pytest.CaptureFixture[str]):
    spec = replace(SPEC, backends=("aot_eager", "inductor"))
    for label in ("baseline", "control", "aot_eager", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([EQUAL[label]] * NUM_BLOCKS, falling_losses(spec.num_steps))
        run.end()
    assert main(["explain", "--ladder", EXPERIMENT_ID, "--data-folder", str(data_dir.path)]) == 0
    said = capsys.readouterr().out
    assert "leaves out: Dynamo, decompositions, autotuning." in said
    alone = DataDir(data_dir.path / "alone")
    Recording(alone.runs, "baseline", experiment_spec()).claim().start().end()
    assert main(["explain", "--ladder", EXPERIMENT_ID, "--data-folder", str(alone.path)]) == 2
    assert "has no ladder" in capsys.readouterr().err


def test_a_ladder_of_checks_names_the_first_rung_whose_tensors_are_wrong(data_dir: DataDir):
    spec = experiment_spec(scenario="accuracy", backends=ladder_on("cpu")[:4])
    bad = {"training": ("fail_accuracy", [tensor("head.weight", passed=False)])}
    good = {"training": ("pass", [tensor("head.weight")])}
    for label in ("baseline", "eager", "aot_eager", "aot_eager_decomp_partition", "inductor"):
        wrong = label in ("aot_eager_decomp_partition", "inductor")
        record(data_dir, label, bad if wrong else good, spec=spec)
    with Store.in_memory(data_dir) as store:
        ladder = find_ladder(store, EXPERIMENT_ID)
    assert ladder is not None
    said = "\n".join(map(str, findings(ladder)))
    assert "wrong numbers: aot_eager_decomp_partition" in said and "head.weight" in said
