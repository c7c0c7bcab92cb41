"""Answers of compiled models beside those of the same weights: what a journal tells of them."""

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.storage.statistics.parity import Parity
from breakeven.storage.terminal.parity_words import parity_words
from tests.helpers.comparisons import compared, notes_of
from tests.helpers.journals import Recording, experiment_spec, falling_losses

SPEC = experiment_spec(num_steps=80)
NONE_WRONG = {
    "compared": 200, "differing": 3, "wrong": 0, "wrong_classes": 0, "margin": 1e-7,
    "difference": 2e-7, "tolerance": 1e-6, "ratio": 0.2, "samples": [],
}  # fmt: skip


def judged(data_dir: DataDir, *told: dict[str, object], accuracy: float = 0.8) -> Parity:
    """Of a backend that trains as the baseline, and has the right loss in inference."""
    for label in ("baseline", "control"):
        run = Recording(data_dir.runs, label, SPEC).claim().start()
        run.blocks([0.1] * 8, falling_losses(80)).evaluation(0.8, num_samples=200).end()
    run = Recording(data_dir.runs, "inductor", SPEC).claim().start()
    for part, answers in enumerate(told):
        run.blocks([0.1] * (8 // len(told)), falling_losses(80)[80 // len(told) * part :])
        run.evaluation(0.8, split="validation", compiled=False)
        run.evaluation(accuracy, split="validation", compiled=True, answers=answers)
    run.end()
    parity = compared(data_dir).results[2].parity
    assert parity is not None
    return parity


def test_one_wrong_answer_breaks_parity(data_dir: DataDir) -> None:
    wrong = {**NONE_WRONG, "wrong": 1, "wrong_classes": 1, "margin": 2.0, "difference": 2.5,
             "ratio": 2.5e6, "samples": [17]}  # fmt: skip
    parity = judged(data_dir, NONE_WRONG, wrong)
    assert parity.verdict == "broken"
    assert str(parity_words(parity)).endswith(
        "but its compiled model answers 1 of 200 targets otherwise than the same weights without a "
        "compiler at step 80 (sample 17 of the validation split; another class, with logits up to "
        "2.5 off, where rounding explains 1e-06): inference is wrong"
    )


@pytest.mark.parametrize("missing", ["samples", "margin", "compared", "tolerance"])
def test_an_entry_that_lacks_a_figure_is_not_believed_and_hides_no_other(
    data_dir: DataDir, missing: str
) -> None:
    wrong = {**NONE_WRONG, "wrong": 1, "samples": [17]}
    assert judged(data_dir, {**wrong, missing: None}, NONE_WRONG).verdict == "holds"


def test_answers_that_were_wrong_once_break_parity_though_the_last_are_right(
    data_dir: DataDir,
) -> None:
    wrong = {**NONE_WRONG, "wrong": 4, "difference": "Infinity", "ratio": "Infinity",
             "samples": [0, 4, 8]}  # fmt: skip
    parity = judged(data_dir, wrong, NONE_WRONG)
    assert parity.verdict == "broken"
    assert (
        "answers 4 of 200 targets otherwise than the same weights without a compiler at step 40 "
        "(samples 0, 4, 8 of the validation split; the same class, but numbers up to not finite"
    ) in str(parity_words(parity))


def test_other_answers_by_rounding_break_nothing(data_dir: DataDir) -> None:
    # A model that prefers no class: rounding chooses, and accuracies say nothing beside that.
    told = {**NONE_WRONG, "differing": 150}
    assert judged(data_dir, told, told, accuracy=0.2).verdict == "holds"


@pytest.mark.parametrize("told", [{"error": "NotImplementedError: no rule"}, {"wrong": None}])
def test_answers_that_were_not_compared_leave_the_accuracies(
    data_dir: DataDir, told: dict[str, object]
) -> None:
    assert judged(data_dir, told).verdict == "holds"
    other = DataDir(data_dir.path / "other")
    assert judged(other, told, accuracy=0.2).verdict == "broken"


def test_where_answers_were_not_compared_a_note_says_so(data_dir: DataDir) -> None:
    judged(data_dir, {"error": "NotImplementedError: no rule"})
    (note,) = (one for one in notes_of(compared(data_dir)) if one.startswith("Answers"))
    assert note == (
        "Answers of the compiled model were not compared with those of the same weights without a "
        "compiler: inductor (NotImplementedError: no rule). Parity says nothing of inference there."
    )
    right = DataDir(data_dir.path / "right")
    judged(right, NONE_WRONG)
    assert not [one for one in notes_of(compared(right)) if one.startswith("Answers")]


def test_scripts_evaluate_by_themselves_and_a_note_says_what_that_leaves_open(
    data_dir: DataDir,
) -> None:
    spec = ExperimentSpec(
        name="mine", task="script", model=ModelSpec(source="script:/home/me/train.py"),
        data=DataSpec(source="script"), backends=("inductor",), block_steps=10,
    )  # fmt: skip
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start(num_steps=80)
        run.blocks([0.1] * 8, falling_losses(80))
        run.evaluation(0.8, split="validation", compiled=False).end()
    (note,) = (one for one in notes_of(compared(data_dir)) if one.startswith("Answers"))
    assert "compiler: inductor. Parity says nothing of inference" in note
