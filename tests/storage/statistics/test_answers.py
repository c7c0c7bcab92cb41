"""Answers of compiled models beside those of the same weights: what a journal tells of them."""

from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.terminal.parity_words import parity_words
from tests.helpers.comparisons import compared, notes_of
from tests.helpers.journals import Recording, experiment_spec, falling_losses

NONE_WRONG = {
    "compared": 200, "differing": 3, "wrong": 0, "wrong_classes": 0, "margin": 1e-7,
    "difference": 2e-7, "tolerance": 1e-6, "ratio": 0.2, "samples": [],
}  # fmt: skip


WRONG = {**NONE_WRONG, "wrong": 1, "samples": [17]}
NOT_COMPARED = {"error": "NotImplementedError: no rule"}
# A model that prefers no class: rounding chooses, and accuracies say nothing beside that.
ROUNDED = {**NONE_WRONG, "differing": 150}
TOLD: dict[str, tuple[list[dict[str, Any]], float, str, str]] = {
    "one wrong answer": (
        [NONE_WRONG, {**WRONG, "wrong_classes": 1, "margin": 2.0, "difference": 2.5,
                      "ratio": 2.5e6}], 0.8, "broken",
        "but its compiled model answers 1 of 200 targets differently from the same weights without "
        "a compiler at step 80 (sample 17 of the validation split; another class, with logits up "
        "to 2.5 off, where rounding explains 1e-06): inference is wrong"),
    "answers that were wrong once": (
        [{**NONE_WRONG, "wrong": 4, "difference": "Infinity", "ratio": "Infinity",
          "samples": [0, 4, 8]}, NONE_WRONG], 0.8, "broken",
        "answers 4 of 200 targets differently from the same weights without a compiler at step 40 "
        "(samples 0, 4, 8 of the validation split; the same class, but numbers up to not finite"),
    "other answers by rounding": ([ROUNDED, ROUNDED], 0.2, "holds", ""),
    "an error leaves the accuracies": ([NOT_COMPARED], 0.8, "holds", ""),
    "an error leaves other accuracies": ([NOT_COMPARED], 0.2, "broken", ""),
    "undefined answers leave the accuracies": ([{"wrong": None}], 0.8, "holds", ""),
    "undefined answers leave other accuracies": ([{"wrong": None}], 0.2, "broken", ""),
    **{f"an entry without {name} is ignored": (
        [{**WRONG, name: None}, NONE_WRONG], 0.8, "holds", "")
        for name in ("samples", "margin", "compared", "tolerance")},
}  # fmt: skip


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Backends that train as the baseline, and have the right loss in inference."""
    data_dir = DataDir(tmp_path_factory.mktemp("answers"))
    names = tuple(f"inductor:case={number}" for number in range(len(TOLD)))
    spec, losses = experiment_spec(num_steps=80, backends=names), falling_losses(80)
    for label in ("baseline", "control"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([0.1] * 8, losses).evaluation(0.8, num_samples=200).end()
    for number, (told, accuracy, *_) in enumerate(TOLD.values()):
        run = Recording(data_dir.runs, f"inductor-case_{number}", spec).claim().start()
        for part, answers in enumerate(told):
            run.blocks([0.1] * (8 // len(told)), losses[80 // len(told) * part :])
            run.evaluation(0.8, split="validation", compiled=False)
            run.evaluation(accuracy, split="validation", compiled=True, answers=answers)
        run.end()
    return compared(data_dir)


@pytest.mark.parametrize("case", TOLD)
def test_wrong_answers_of_a_compiled_model_break_parity(judged: Comparison, case: str) -> None:
    *_, verdict, words = TOLD[case]
    parity = judged.results[2 + list(TOLD).index(case)].parity
    assert parity is not None and parity.verdict == verdict
    assert words in str(parity_words(parity))


def test_where_answers_were_not_compared_a_note_says_so(judged: Comparison) -> None:
    (note,) = (one for one in notes_of(judged) if one.startswith("Answers"))
    assert note == (
        "Answers of the compiled model were not compared with those of the same weights without a "
        "compiler: inductor-case_3, inductor-case_4, inductor-case_5, inductor-case_6 "
        "(NotImplementedError: no rule). Their parity does not cover inference."
    )


def test_a_note_says_that_scripts_evaluate_by_themselves(data_dir: DataDir) -> None:
    spec = ExperimentSpec(
        name="mine", task="script", model=ModelSpec(source="script:/home/me/train.py"),
        data=DataSpec(source="script"), backends=("inductor",), block_steps=10,
    )  # fmt: skip
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start(num_steps=80)
        run.blocks([0.1] * 8, falling_losses(80))
        run.evaluation(0.8, split="validation", compiled=False).end()
    (note,) = (one for one in notes_of(compared(data_dir)) if one.startswith("Answers"))
    assert "compiler: inductor. Their parity does not cover inference" in note
