"""What an experiment is called that nobody gave a name."""

import pytest

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import known_as, usual_name


@pytest.mark.parametrize(
    ("model", "data", "name"),
    [
        ("builtin:bert-tiny", "builtin:reviews", "bert-tiny on reviews"),
        ("google/bert", "/home/me/ag_news.csv", "bert on ag_news.csv"),
        ("script:/home/me/nanogpt/train.py", "script", "nanogpt/train.py"),
        ("script:/home/me/nanogpt/finetune.py", "script", "finetune.py"),
        ("script:/train.py", "script", "train.py"),
    ],
)
def test_what_has_no_name_is_called_after_what_it_trains(model: str, data: str, name: str) -> None:
    assert usual_name(model, data) == name
    assert known_as("My script", model, data) == known_as("My data", model, data) == name
    assert known_as("Mine", model, data) == "Mine"


def test_an_unnamed_experiment_says_what_tells_it_from_others() -> None:
    named = usual_name("builtin:bert-base", "builtin:reviews", precision="bf16", batch_size=32,
                       backends=("inductor", "cudagraphs"), device="cuda:0")  # fmt: skip
    assert named == "bert-base on reviews, bf16, batch 32, inductor, cudagraphs, cuda:0"
    script = usual_name("script:finetune.py", "script", precision="bf16", batch_size=32,
                        backends=("inductor",))  # fmt: skip
    assert script == "finetune.py, inductor"


def test_an_experiment_of_before_that_was_called_my_script_is_read_with_its_scripts_name() -> None:
    written = {"name": "My script", "task": "script", "data": {"source": "script"},
               "model": {"source": "script:/home/me/nanogpt/train.py"}}  # fmt: skip
    assert ExperimentSpec.from_dict(written).name == "nanogpt/train.py"
