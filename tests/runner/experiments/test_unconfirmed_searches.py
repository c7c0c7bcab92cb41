"""Why a search has no training that confirms its answer."""

from pathlib import Path

from breakeven.runner.experiments.continuing import instead_of_continuing
from breakeven.runner.experiments.unconfirmed_searches import TOO_SHORT, why_too_short
from breakeven.runner.specs.candidates import search_spec
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from tests.helpers.journals import Recording

WORK = ExperimentSpec(
    name="train.py",
    task="script",
    model=ModelSpec(source="script:/home/me/train.py"),
    data=DataSpec(source="script"),
    backends=("inductor",),
)
SEARCH = search_spec(WORK, steps=20_000)


def baseline(folder: Path, spec: ExperimentSpec) -> Recording:
    run = Recording(folder, "baseline", spec).claim().start()
    return run.blocks([0.1] * 2, [0.5] * 20)


def test_a_search_whose_script_ended_and_could_not_start_again_was_too_short(
    tmp_path: Path,
) -> None:
    run = baseline(tmp_path, SEARCH)
    run.end()
    assert why_too_short(SEARCH, run.run) == TOO_SHORT
    assert instead_of_continuing(SEARCH, run.run) == TOO_SHORT, "and nothing of a larger budget"


def test_a_search_that_ended_by_itself_was_not_too_short(tmp_path: Path) -> None:
    run = baseline(tmp_path, SEARCH)
    run.stop("its time is over")
    run.end()
    assert why_too_short(SEARCH, run.run) == ""
    assert instead_of_continuing(SEARCH, run.run) == "Run it again with a larger budget instead."
    # Nor was a comparison, which needs no further steps than the script makes.
    run = baseline(tmp_path / "other", WORK)
    run.end()
    assert why_too_short(WORK, run.run) == ""
