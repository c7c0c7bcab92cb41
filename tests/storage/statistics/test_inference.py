"""Inference under a compiler, against the same weights without one; gaps worked out by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.specs.training import Precision
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.statistics.parity import FIGURES, judge_inference
from breakeven.storage.terminal.parity_words import parity_words
from tests.helpers.comparisons import compared
from tests.helpers.journals import Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy

SPEC = experiment_spec(num_steps=80)
# The first training loss is 2: below 0.02 a loss counts as 0.02.
LOSSES = falling_losses(80)


def record(data_dir: DataDir, label: str, spec: ExperimentSpec = SPEC) -> Recording:
    return Recording(data_dir.runs, label, spec).claim().start().blocks([0.1] * 8, LOSSES)


Pair = tuple[tuple[float, float], tuple[float | None, float | None]]
"""Loss and accuracy without a compiler and under it."""


def compared_pairs(
    data_dir: DataDir, pairs: Sequence[Pair], spec: ExperimentSpec = SPEC
) -> Comparison:
    """Backends that train as the baseline; each is evaluated both ways at the end."""
    names = tuple(f"inductor:case={number}" for number in range(len(pairs)))
    spec = replace(spec, backends=names)
    for label in ("baseline", "control"):
        record(data_dir, label, spec).end()
    for number, (losses, accuracies) in enumerate(pairs):
        backend = record(data_dir, f"inductor-case_{number}", spec)
        for compiled in (False, True):
            backend.evaluation(accuracies[compiled], losses[compiled], split="validation",
                               compiled=compiled)  # fmt: skip
        backend.end()
    return compared(data_dir)


def inductor(data_dir: DataDir) -> Result:
    return next(one for one in compared(data_dir).results if one.label == "inductor")


ANSWERS_DIFFERENTLY = (
    ", but its compiled model answers differently from the same weights without a compiler "
    "({} at step 80, validation split): inference is wrong"
)
RIGHT = (0.8, 0.8)
CASES: dict[str, tuple[Pair, float | None, str, str]] = {
    "answers alike": (((1.25, 1.251), RIGHT), 8e-4, "holds", ""),  # 0.001 / 1.25
    "answers differently": (((1.25, 1.3), RIGHT), 0.04, "broken", "loss 1.3 vs 1.25"),
    "compiled alone not finite": (((1.0, math.nan), RIGHT), math.inf, "broken", "loss nan vs 1"),
    "uncompiled alone not finite": (((math.inf, 1.0), RIGHT), math.inf, "broken", "loss 1 vs inf"),
    "both not finite": (((math.nan, math.inf), RIGHT), None, "holds", ""),
    # 2e-6 / (0.01 x 2) = 1e-4, though one loss is thrice the other.
    "near zero": (((1e-6, 3e-6), RIGHT), 1e-4, "holds", ""),
    # Mean share 0.75: 2 x sqrt(2 x 0.75 x 0.25 / 200) = 0.0866 is less than 0.1.
    "right loss and wrong answers": (
        ((1.0, 1.0), (0.8, 0.7)), 0.0, "broken", "accuracy 0.7 vs 0.8"),
    # Mean share 0.76: 0.0854 is more than 0.08.
    "answers that chance explains": (((1.0, 1.0), (0.8, 0.72)), 0.0, "holds", ""),
}  # fmt: skip


def test_losses_and_answers_are_those_of_the_same_weights(data_dir: DataDir) -> None:
    comparison = compared_pairs(data_dir, [pair for pair, *_ in CASES.values()])
    gaps = comparison.table()["inference_gap"].tolist()
    assert gaps == [None, None, *(one.inference_gap for one in comparison.results[2:])]
    for (case, (_, gap, verdict, words)), found in zip(
        CASES.items(), comparison.results[2:], strict=True
    ):
        assert found.inference_gap == (None if gap is None else pytest.approx(gap)), case
        assert found.parity is not None and found.parity.verdict == verdict, case
        said = str(parity_words(found.parity))
        assert said.startswith("the loss stays within 0 x the band over the first 70"), case
        assert said.endswith(ANSWERS_DIFFERENTLY.format(words)) is (verdict == "broken"), case
        # Training itself left the band nowhere.
        assert (found.parity.first_step_outside, found.parity.max_ratio_to_band) == (None, 0.0)
    # Its own uncompiled evaluation speaks for the run.
    measured = comparison.results[2].measured
    assert (measured.eval_loss, measured.accuracy) == (1.25, 0.8)


def test_the_precision_is_that_of_the_experiment(data_dir: DataDir) -> None:
    """In float32 0.001 would be allowed."""
    spec = replace(SPEC, training=TrainingSpec(batch_size=8, precision="bf16"))
    found = compared_pairs(data_dir, [((1.0, 1.005), RIGHT)], spec).results[2].parity
    assert found is not None and found.verdict == "holds"


def test_each_split_and_step_is_compared_to_itself(data_dir: DataDir) -> None:
    for label in ("baseline", "control"):
        record(data_dir, label).evaluation(None).end()
    run = record(data_dir, "inductor")
    for split, loss, compiled in (("train", 1.0, 1.01), ("validation", 2.0, 2.1)):
        run.evaluation(None, loss, split=split, compiled=False)
        run.evaluation(None, compiled, split=split, compiled=True)
    run.evaluation(None, 9.0, split="test", compiled=True)  # without its counterpart
    run.end()
    found = inductor(data_dir)
    assert found.inference_gap == pytest.approx(0.05)
    assert found.parity is not None
    assert "(loss 2.1 vs 2 at step 80, validation split)" in str(parity_words(found.parity))


def test_wrong_inference_is_told_beside_wrong_training(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=80, controls=0)
    record(data_dir, "baseline", spec).end()
    run = record(data_dir, "inductor", spec)
    run.evaluation(None, 1.0, compiled=False).evaluation(None, 2.0, compiled=True).end()
    parity = inductor(data_dir).parity
    assert parity.verdict == "broken"
    assert str(parity_words(parity)).startswith("its compiled model answers differently")

    other = DataDir(data_dir.path / "other")
    for label in ("baseline", "control"):
        record(other, label).end()
    run = Recording(other.runs, "inductor", SPEC).start().blocks([0.1] * 8, [9.0] * 80)
    run.evaluation(None, 1.0, compiled=False).evaluation(None, 2.0, compiled=True).end()
    parity = inductor(other).parity
    assert parity is not None
    assert "the loss leaves the band at step 0" in str(parity_words(parity))
    assert ", and its compiled model answers differently" in str(parity_words(parity))


def judged(
    losses: tuple[float, float], accuracies: tuple[float, float] = (0.75, 0.75),
    num_samples: int = 200, first_loss: float = 2.0, precision: Precision = "float32",
) -> str | None:  # fmt: skip
    scores = pd.DataFrame(
        [
            {"step": 80, "split": "validation", "compiled": compiled, "name": name,
             "value": values[compiled], "num_samples": num_samples}
            for name, values in (("loss", losses), ("accuracy", accuracies))
            for compiled in (False, True)
        ]
    )  # fmt: skip
    answers = pd.DataFrame(columns=[*FIGURES, "samples"])
    return judge_inference(scores, answers, first_loss, precision)[1]


@pytest.mark.parametrize(
    ("precision", "within", "beyond"),
    [("float32", 0.9e-3, 1.1e-3), ("tf32", 3.9e-3, 4.1e-3), ("fp16", 3.9e-3, 4.1e-3),
     ("bf16", 0.9e-2, 1.1e-2)],
)  # fmt: skip
def test_coarse_precision_may_err_more(precision: Precision, within: float, beyond: float) -> None:
    assert judged((1.0, 1.0 - within), precision=precision) is None
    assert judged((1.0, 1.0 - beyond), precision=precision) is not None


@pytest.mark.parametrize(
    ("num_samples", "compiled", "is_wrong"),
    [
        (4, 0.25, True),  # half of them; two standard errors would allow 0.71
        (8, 0.375, True),
        (8, 0.5, False),  # a quarter
        (2, 0.25, False),  # less than one sample of two
        (200, 0.6, True),
    ],
)
def test_few_samples_excuse_few_answers(num_samples: int, compiled: float, is_wrong: bool) -> None:
    fault = judged((1.0, 1.0), (0.75, compiled), num_samples)
    assert (fault is not None) == is_wrong


@pytest.mark.parametrize("first_loss", [2.0, math.inf, math.nan])
def test_a_first_loss_that_is_not_finite_excuses_nothing(first_loss: float) -> None:
    assert judged((1.0, 5.0), first_loss=first_loss) is not None
    assert judged((1.0, 1.0), first_loss=first_loss) is None
