"""Inference under a compiler beside that of the same weights without one; gaps by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.specs.training import Precision
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.statistics.parity import ANSWER_FIGURES, Parity, judge_inference
from breakeven.storage.words.parity import parity_words
from tests.helpers.comparisons import compared, minor_warnings_of
from tests.helpers.journals import Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy

SPEC = experiment_spec(num_steps=80)
# The first training loss is 2: below 0.02 a loss counts as 0.02.
LOSSES = falling_losses(80)


class Pair(NamedTuple):
    """An evaluation without a compiler and under it, and how their answers compare."""

    losses: tuple[float, float] = (1.0, 1.0)
    accuracies: tuple[float | None, float | None] = (0.8, 0.8)
    answers: dict[str, Any] | None = None


NONE_WRONG = {
    "compared": 200,
    "differing": 3,
    "wrong": 0,
    "wrong_classes": 0,
    "margin": 1e-7,
    "difference": 2e-7,
    "tolerance": 1e-6,
    "ratio": 0.2,
    "samples": [],
}
WRONG = {**NONE_WRONG, "wrong": 1, "samples": [17]}
OTHER_CLASS = {**WRONG, "wrong_classes": 1, "margin": 2.0, "difference": 2.5, "ratio": 2.5e6}
NOT_FINITE = {
    **NONE_WRONG,
    "wrong": 4,
    "difference": "Infinity",
    "ratio": "Infinity",
    "samples": [0, 4, 8],
}
NOT_COMPARED = {"error": "NotImplementedError: no rule"}
# A model that prefers no class: rounding chooses, and accuracies say nothing beside that.
ROUNDED = Pair(accuracies=(0.8, 0.2), answers={**NONE_WRONG, "differing": 150})
CASES: dict[str, tuple[list[Pair], float | None, str, str]] = {
    "an error leaves the accuracies": ([Pair(answers=NOT_COMPARED)], 0.0, "holds", ""),
    "an error leaves other accuracies": (
        [Pair(accuracies=(0.8, 0.2), answers=NOT_COMPARED)],
        0.0,
        "broken",
        "",
    ),
    "undefined answers leave the accuracies": ([Pair(answers={"wrong": None})], 0.0, "holds", ""),
    "undefined answers leave other accuracies": (
        [Pair(accuracies=(0.8, 0.2), answers={"wrong": None})],
        0.0,
        "broken",
        "",
    ),
    "one wrong answer": (
        [Pair(answers=NONE_WRONG), Pair(answers=OTHER_CLASS)],
        0.0,
        "broken",
        "but its compiled model answers 1 of 200 targets differently from the same weights without "
        "a compiler at step 80 (sample 17 of the validation split; another class, with logits up "
        "to 2.5 off, where rounding explains 1e-06): inference is wrong",
    ),
    "answers that were wrong once": (
        [Pair(answers=NOT_FINITE), Pair(answers=NONE_WRONG)],
        0.0,
        "broken",
        "answers 4 of 200 targets differently from the same weights without a compiler at step 40 "
        "(samples 0, 4, 8 of the validation split; the same class, but numbers up to not finite",
    ),
    "other answers by rounding": ([ROUNDED, ROUNDED], 0.0, "holds", ""),
    **{
        f"an entry without {name} is ignored": (
            [Pair(answers={**WRONG, name: None}), Pair(answers=NONE_WRONG)],
            0.0,
            "holds",
            "",
        )
        for name in ("samples", "margin", "compared", "tolerance")
    },
    "losses alike": ([Pair((1.25, 1.251))], 8e-4, "holds", ""),  # 0.001 / 1.25
    "losses apart": (
        [Pair((1.25, 1.3))],
        0.04,
        "broken",
        ", but its compiled model answers differently from the same weights without a compiler "
        "(loss 1.3 vs 1.25 at step 80, validation split): inference is wrong",
    ),
    "compiled alone not finite": ([Pair((1.0, math.nan))], math.inf, "broken", "loss nan vs 1"),
    "uncompiled alone not finite": ([Pair((math.inf, 1.0))], math.inf, "broken", "loss 1 vs inf"),
    "both not finite": ([Pair((math.nan, math.inf))], None, "holds", ""),
    # 2e-6 / (0.01 x 2) = 1e-4, though one loss is thrice the other.
    "near zero": ([Pair((1e-6, 3e-6))], 1e-4, "holds", ""),
    # Mean share 0.75: 2 x sqrt(2 x 0.75 x 0.25 / 200) = 0.0866 is less than 0.1.
    "right loss and wrong answers": (
        [Pair(accuracies=(0.8, 0.7))],
        0.0,
        "broken",
        "accuracy 0.7 vs 0.8",
    ),
    # Mean share 0.76: 0.0854 is more than 0.08.
    "answers that chance explains": ([Pair(accuracies=(0.8, 0.72))], 0.0, "holds", ""),
}


def compared_pairs(
    data_dir: DataDir, evaluations: Sequence[Sequence[Pair]], spec: ExperimentSpec = SPEC
) -> Comparison:
    """Backends that train as the baseline, each evaluated both ways after equal parts."""
    spec = replace(spec, backends=tuple(f"inductor:case={n}" for n in range(len(evaluations))))
    for arm, pairs in zip(spec.arms, ([None], [None], *evaluations), strict=True):
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        for pair in pairs:
            run.blocks([0.1] * (8 // len(pairs)), LOSSES[run.num_steps :])
            for compiled in (False, True) if pair else ():
                answers = {"answers": pair.answers} if compiled and pair.answers else {}
                run.evaluation(
                    pair.accuracies[compiled],
                    pair.losses[compiled],
                    split="validation",
                    compiled=compiled,
                    **answers,
                )
        run.end()
    return compared(data_dir)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    data_dir = DataDir(tmp_path_factory.mktemp("inference"))
    return compared_pairs(data_dir, [pairs for pairs, *_ in CASES.values()])


@pytest.mark.parametrize("case", CASES)
def test_losses_and_answers_are_those_of_the_same_weights(judged: Comparison, case: str) -> None:
    _, gap, verdict, words = CASES[case]
    result = judged.results[2 + list(CASES).index(case)]
    assert result.inference_gap == (None if gap is None else pytest.approx(gap))
    assert result.parity.verdict == verdict
    said = str(parity_words(result.parity))
    assert said.startswith("the loss stays within 0 x the band over the first 70")
    assert words in said and said.endswith(": inference is wrong") is (verdict == "broken")
    # Training itself left the band nowhere.
    assert (result.parity.first_step_outside, result.parity.max_ratio_to_band) == (None, 0.0)


def test_a_run_has_the_numbers_of_its_uncompiled_evaluation(judged: Comparison) -> None:
    measured = judged.result_of("inductor-case_11").measured
    assert (measured.eval_loss, measured.accuracy) == (1.25, 0.8)
    gaps = judged.table()["inference_gap"].tolist()
    assert gaps == [None, None, *(result.inference_gap for result in judged.results[2:])]


def test_where_answers_were_not_compared_a_warning_says_so(judged: Comparison) -> None:
    (warning,) = (text for text in minor_warnings_of(judged) if text.startswith("Answers"))
    assert warning == (
        "Answers of the compiled model were not compared with those of the same weights without a "
        "compiler: inductor-case_0, inductor-case_1, inductor-case_2, inductor-case_3 "
        "(NotImplementedError: no rule). Their parity does not cover inference."
    )


def test_a_warning_says_that_compiled_scripts_evaluate_by_themselves(data_dir: DataDir) -> None:
    spec = ExperimentSpec(
        name="mine",
        task="script",
        model=ModelSpec(source="script:/home/me/train.py"),
        data=DataSpec(source="script"),
        backends=("inductor", "none:optimizer=fused"),
        block_steps=10,
    )
    for label in (arm.label for arm in spec.arms):
        run = Recording(data_dir.runs, label, spec).claim().start(num_steps=80)
        run.blocks([0.1] * 8, LOSSES).evaluation(0.8, split="validation", compiled=False).end()
    texts = minor_warnings_of(compared(data_dir))
    (warning,) = (text for text in texts if text.startswith("Answers"))
    assert "compiler: inductor. Their parity does not cover inference" in warning


def test_the_precision_is_that_of_the_experiment(data_dir: DataDir) -> None:
    """In float32 0.001 would be allowed."""
    spec = replace(SPEC, training=TrainingSpec(batch_size=8, precision="bf16"))
    parity = compared_pairs(data_dir, [[Pair((1.0, 1.005))]], spec).results[2].parity
    assert parity.verdict == "holds"


def evaluated(data_dir: DataDir, losses: Sequence[float], controls: int, **splits: Any) -> Any:
    """The result of a backend with these losses, and with evaluations by split."""
    spec = experiment_spec(num_steps=80, controls=controls)
    for label in (arm.label for arm in spec.arms):
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([0.1] * 8, losses if label == "inductor" else LOSSES)
        for split, (plain, compiled) in splits.items() if label == "inductor" else ():
            for loss, is_compiled in ((plain, False), (compiled, True)):
                if loss is not None:
                    run.evaluation(None, loss, split=split, compiled=is_compiled)
        run.end()
    return compared(data_dir).result_of("inductor")


def test_each_split_and_step_is_compared_to_itself(data_dir: DataDir) -> None:
    result = evaluated(
        data_dir, LOSSES, 1, train=(1.0, 1.01), validation=(2.0, 2.1), test=(None, 9.0)
    )
    assert result.inference_gap == pytest.approx(0.05)
    assert "(loss 2.1 vs 2 at step 80, validation split)" in str(parity_words(result.parity))


def test_wrong_inference_is_told_beside_wrong_training(data_dir: DataDir) -> None:
    parity: Parity = evaluated(data_dir, LOSSES, 0, validation=(1.0, 2.0)).parity
    assert parity.verdict == "broken"
    assert str(parity_words(parity)).startswith("its compiled model answers differently")
    other = DataDir(data_dir.path / "other")
    words = str(parity_words(evaluated(other, [9.0] * 80, 1, validation=(1.0, 2.0)).parity))
    assert "the loss leaves the band at step 0" in words
    assert ", and its compiled model answers differently" in words


def fault_of(
    losses: tuple[float, float],
    accuracies: tuple[float, float] = (0.75, 0.75),
    num_samples: int = 200,
    first_loss: float = 2.0,
    precision: Precision = "float32",
) -> object:
    scores = pd.DataFrame(
        [
            {
                "step": 80,
                "split": "validation",
                "compiled": compiled,
                "name": name,
                "value": values[compiled],
                "num_samples": num_samples,
            }
            for name, values in (("loss", losses), ("accuracy", accuracies))
            for compiled in (False, True)
        ]
    )
    answers = pd.DataFrame(columns=[*ANSWER_FIGURES, "samples"])
    return judge_inference(scores, answers, first_loss, precision)[1]


@pytest.mark.parametrize(
    ("precision", "within", "beyond"),
    [
        ("float32", 0.9e-3, 1.1e-3),
        ("tf32", 3.9e-3, 4.1e-3),
        ("fp16", 3.9e-3, 4.1e-3),
        ("bf16", 0.9e-2, 1.1e-2),
    ],
)
def test_coarse_precision_may_err_more(precision: Precision, within: float, beyond: float) -> None:
    assert fault_of((1.0, 1.0 - within), precision=precision) is None
    assert fault_of((1.0, 1.0 - beyond), precision=precision) is not None


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
    assert (fault_of((1.0, 1.0), (0.75, compiled), num_samples) is not None) == is_wrong


@pytest.mark.parametrize("first_loss", [2.0, math.inf, math.nan])
def test_a_first_loss_that_is_not_finite_excuses_nothing(first_loss: float) -> None:
    assert fault_of((1.0, 5.0), first_loss=first_loss) is not None
    assert fault_of((1.0, 1.0), first_loss=first_loss) is None
