"""What lets a script train longer, if it ended before its search."""

from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.experiments.continuing import instead_of_continuing
from breakeven.runner.experiments.unconfirmed_searches import why_too_short
from breakeven.runner.specs.candidates import search_spec
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec
from tests.helpers.journals import Recording

WORK = ExperimentSpec(
    name="train.py",
    task="script",
    model=ModelSpec(source="script:/home/me/train.py"),
    data=DataSpec(source="script"),
    backends=("inductor",),
)
SEARCH = search_spec(WORK, steps=20_000)


def baseline(folder: Path, spec: ExperimentSpec, text: str) -> Recording:
    run = Recording(folder, "baseline", spec).claim().start()
    copy = run.run.artifacts / "source" / "train.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(text)
    return run.blocks([0.1] * 2, [0.5] * 20)


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("p.add_argument('-n', '--steps')\np.add_argument('--lr')", "its own option --steps"),
        ('@click.option("--num-epochs")\n@click.option("--log-steps")', "option --num-epochs"),
        ('flag("--max_iters", "--warmup-steps"); flag("--epochs")', "--max_iters or --epochs"),
        ("for step in range(100): ...", "it names no option for its length"),
    ],
)
def test_the_option_of_the_script_itself_is_named(tmp_path: Path, text: str, how: str) -> None:
    run = baseline(tmp_path, SEARCH, text)
    run.end()
    sentence = why_too_short(SEARCH, run.run)
    assert how in sentence and "log" not in sentence and "warmup" not in sentence
    assert instead_of_continuing(SEARCH, run.run) == sentence, "and nothing of a larger budget"


def test_the_limit_of_a_script_is_named_before_its_options(tmp_path: Path) -> None:
    spec = replace(SEARCH, script=ScriptSpec(steps=50))
    run = baseline(tmp_path, spec, "'--steps'")
    run.end()
    assert "its limit is 50 steps: --set script.steps=N" in why_too_short(spec, run.run)


def test_a_search_that_ended_by_itself_was_not_too_short(tmp_path: Path) -> None:
    run = baseline(tmp_path, SEARCH, "'--steps'")
    run.stop("its time is over")
    run.end()
    assert why_too_short(SEARCH, run.run) == ""
    assert instead_of_continuing(SEARCH, run.run) == "Run it again with a larger budget instead"
    # Nor was a comparison, which needs no further steps than the script makes.
    run = baseline(tmp_path / "other", WORK, "'--steps'")
    run.end()
    assert why_too_short(WORK, run.run) == ""
