"""Inference under a compiler, against the same weights without one; gaps worked out by hand."""

import math

import pandas as pd
import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.specs.training import Precision
from breakeven.storage.comparison.results import Result
from breakeven.storage.statistics.inference import FIGURES, judge_inference
from breakeven.storage.terminal.parity_words import parity_words
from tests.helpers.comparisons import compared
from tests.helpers.journals import Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy

SPEC = experiment_spec(num_steps=80)
# The first training loss is 2: below 0.02 a loss counts as 0.02.
LOSSES = falling_losses(80)


def record(data_dir: DataDir, label: str, spec: ExperimentSpec = SPEC) -> Recording:
    return Recording(data_dir.runs, label, spec).claim().start().blocks([0.1] * 8, LOSSES)


def record_pair(
    data_dir: DataDir,
    loss: float,
    compiled_loss: float,
    accuracies: tuple[float | None, float | None] = (0.8, 0.8),
    spec: ExperimentSpec = SPEC,
) -> None:
    """Three runs that train alike, of which the backend's is evaluated both ways at the end."""
    for label in ("baseline", "control"):
        record(data_dir, label, spec).evaluation(accuracies[0], loss).end()
    backend = record(data_dir, "inductor", spec)
    backend.evaluation(accuracies[0], loss, split="validation", compiled=False)
    backend.evaluation(accuracies[1], compiled_loss, split="validation", compiled=True).end()


def inductor(data_dir: DataDir) -> Result:
    return next(one for one in compared(data_dir).results if one.label == "inductor")


def test_a_compiled_model_that_answers_alike_keeps_parity(data_dir: DataDir) -> None:
    record_pair(data_dir, 1.25, 1.251)
    found = inductor(data_dir)
    assert found.inference_gap == pytest.approx(8e-4)  # 0.001 / 1.25
    assert found.parity.verdict == "holds"
    # Its own uncompiled evaluation speaks for the run.
    assert (found.measured.eval_loss, found.measured.accuracy) == (1.25, 0.8)


def test_a_compiled_model_that_answers_differently_breaks_parity(data_dir: DataDir) -> None:
    record_pair(data_dir, 1.25, 1.3)
    comparison = compared(data_dir)
    found = comparison.results[2]
    assert found.inference_gap == pytest.approx(0.04)  # 0.05 / 1.25
    assert comparison.table()["inference_gap"].tolist() == [None, None, found.inference_gap]
    assert found.parity.verdict == "broken"
    assert str(parity_words(found.parity)).startswith(
        "the loss stays within 0 x the band over the first 70"
    )
    assert str(parity_words(found.parity)).endswith(
        ", but its compiled model answers differently from the same weights without a compiler "
        "(loss 1.3 vs 1.25 at step 80, validation split): inference is wrong"
    )
    # Training itself left the band nowhere.
    assert (found.parity.first_step_outside, found.parity.max_ratio_to_band) == (None, 0.0)


@pytest.mark.parametrize(
    ("precision", "device", "within", "beyond"),
    [
        ("float32", "cpu", 0.9e-3, 1.1e-3),
        ("tf32", "cuda:0", 3.9e-3, 4.1e-3),
        ("fp16", "cuda:0", 3.9e-3, 4.1e-3),
        ("bf16", "cpu", 0.9e-2, 1.1e-2),
    ],
)
def test_coarser_precision_is_allowed_more(
    data_dir: DataDir, precision: Precision, device: str, within: float, beyond: float
) -> None:
    for gap, verdict in ((within, "holds"), (beyond, "broken")):
        folder = DataDir(data_dir.path / verdict)
        training = TrainingSpec(batch_size=8, precision=precision)
        spec = experiment_spec(num_steps=80, training=training, devices=(device,))
        record_pair(folder, 1.0, 1.0 - gap, spec=spec)
        parity = inductor(folder).parity
        assert parity.verdict == verdict


@pytest.mark.parametrize(
    ("losses", "accuracies", "gap", "verdict"),
    [
        ((1.0, math.nan), (0.8, 0.8), math.inf, "broken"),
        ((math.inf, 1.0), (0.8, 0.8), math.inf, "broken"),
        ((math.nan, math.inf), (0.8, 0.8), None, "holds"),
        # 2e-6 / (0.01 x 2) = 1e-4, though one loss is thrice the other.
        ((1e-6, 3e-6), (0.8, 0.8), pytest.approx(1e-4), "holds"),
        # Mean share 0.75: 2 x sqrt(2 x 0.75 x 0.25 / 200) = 0.0866 is less than 0.1.
        ((1.0, 1.0), (0.8, 0.7), 0.0, "broken"),
        # Mean share 0.76: 0.0854 is more than 0.08.
        ((1.0, 1.0), (0.8, 0.72), 0.0, "holds"),
    ],
    ids=["compiled alone not finite", "uncompiled alone not finite", "both not finite",
         "near zero", "right loss and wrong answers", "answers that chance explains"],
)  # fmt: skip
def test_losses_and_answers_of_the_compiled_model_are_those_of_its_weights(
    data_dir: DataDir, losses: tuple[float, float], accuracies: tuple[float, float],
    gap: float | None, verdict: str,
) -> None:  # fmt: skip
    record_pair(data_dir, *losses, accuracies=accuracies)
    found = inductor(data_dir)
    assert (found.inference_gap, found.parity.verdict) == (gap, verdict)
    named = "(accuracy 0.7 vs 0.8 at step 80, validation split)" in str(parity_words(found.parity))
    assert named is (accuracies == (0.8, 0.7))


def test_each_split_and_step_is_compared_to_itself_and_the_worst_is_named(
    data_dir: DataDir,
) -> None:
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


def test_wrong_inference_is_told_beside_wrong_training_and_without_a_control(
    data_dir: DataDir,
) -> None:
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


def judged(losses: tuple[float, float], accuracies: tuple[float, float], num_samples: int,
           first_loss: float) -> str | None:  # fmt: skip
    scores = pd.DataFrame(
        [
            {"step": 80, "split": "validation", "compiled": compiled, "name": name,
             "value": values[compiled], "num_samples": num_samples}
            for name, values in (("loss", losses), ("accuracy", accuracies))
            for compiled in (False, True)
        ]
    )  # fmt: skip
    answers = pd.DataFrame(columns=[*FIGURES, "samples"])
    return judge_inference(scores, answers, first_loss, "float32")[1]


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
    fault = judged((1.0, 1.0), (0.75, compiled), num_samples, 2.0)
    assert (fault is not None) == is_wrong


@pytest.mark.parametrize("first_loss", [2.0, math.inf, math.nan])
def test_a_first_loss_that_is_not_finite_excuses_nothing(first_loss: float) -> None:
    assert judged((1.0, 5.0), (0.75, 0.75), 200, first_loss) is not None
    assert judged((1.0, 1.0), (0.75, 0.75), 200, first_loss) is None
