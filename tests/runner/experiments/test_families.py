"""The place and the level of an experiment in its family."""

from dataclasses import replace

import pytest

from breakeven.runner.arguments.options import command_line
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.experiments.continuing import why_no_rounds
from breakeven.runner.experiments.families import accept, level_of, share
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.experiments.queue_order import duplicate
from breakeven.runner.experiments.trash import delete
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.follow_ups import investigation
from breakeven.runner.supervision.scheduler import Fallback
from tests.helpers.journals import experiment_spec

PROPOSAL = experiment_spec(family="agent-7")


def spec_of(data_dir: DataDir, experiment_id: str) -> ExperimentSpec:
    return find_experiment(data_dir, experiment_id).spec


def place_of(data_dir: DataDir, experiment_id: str) -> tuple[int | None, float | None]:
    spec = spec_of(data_dir, experiment_id)
    return spec.family_place, spec.family_level


def test_levels_are_those_of_lord_plus_plus() -> None:
    """n^-1.6 / 2.28577: 0.43749 of 0.025 for the first one, 0.14432 for the second. After an
    acceptance at place 1, place 2 also has 0.43749 of 0.025; after a second one, known at place 3,
    place 5 has shares of 5, 5 - 1 = 4 and 5 - 3 = 2."""
    assert sum(map(share, range(1, 1_000_000))) == pytest.approx(0.9998, abs=2e-4)
    assert level_of(1, []) == pytest.approx(0.43749 * 0.025, rel=1e-4)
    assert level_of(2, []) == pytest.approx(0.14432 * 0.025, rel=1e-4)
    assert level_of(2, [1]) == pytest.approx((0.14432 + 0.43749) * 0.025, rel=1e-4)
    fourth, fifth = 4**-1.6 / 2.28577, 5**-1.6 / 2.28577
    expected = 0.025 * fifth + 0.025 * fourth + 0.05 * 0.14432
    assert level_of(5, [1, 3]) == pytest.approx(expected, rel=1e-4)


def test_each_experiment_of_a_family_needs_less_and_keeps_its_level(data_dir: DataDir) -> None:
    ids = [submit(data_dir, PROPOSAL) for _ in range(3)]
    other = submit(data_dir, replace(PROPOSAL, family="another"))
    alone = submit(data_dir, experiment_spec())
    assert [place_of(data_dir, name) for name in ids] == [
        (number, level_of(number, [])) for number in (1, 2, 3)
    ]
    assert place_of(data_dir, other) == (1, level_of(1, []))
    assert place_of(data_dir, alone) == (None, None)


def test_an_acceptance_counts_once_and_for_what_is_queued_after_it(data_dir: DataDir) -> None:
    first, second = submit(data_dir, PROPOSAL), submit(data_dir, PROPOSAL)
    for _ in range(2):
        accept(data_dir, spec_of(data_dir, first), first)
    third = submit(data_dir, PROPOSAL)
    assert place_of(data_dir, second) == (2, level_of(2, [])), "it was queued before"
    assert place_of(data_dir, third) == (3, level_of(3, [2]))
    copied = replace(spec_of(data_dir, first), family="elsewhere")
    accept(data_dir, copied, first)
    accept(data_dir, spec_of(data_dir, first), "20200101-000000-000000-abcd")
    assert place_of(data_dir, submit(data_dir, PROPOSAL)) == (4, level_of(4, [2]))
    assert not (data_dir.families / "elsewhere").exists()


def test_a_deleted_experiment_and_half_a_line_give_no_level_back(data_dir: DataDir) -> None:
    first = submit(data_dir, PROPOSAL)
    for run in find_experiment(data_dir, first).runs:
        run.write_exit(Exit.now(RunState.CANCELLED, "stopped", None))
    delete(data_dir, first)
    with (data_dir.families / "agent-7").open("a") as family:
        family.write("20261121-0930")
    assert place_of(data_dir, submit(data_dir, PROPOSAL)) == (3, level_of(3, []))


def test_a_repetition_run_by_run_keeps_the_place_and_one_run_again_gets_another(
    data_dir: DataDir,
) -> None:
    first = find_experiment(data_dir, submit(data_dir, PROPOSAL))
    fallback = Fallback()
    fallback.submit(data_dir, first, "no memory")
    assert fallback.experiment_id is not None
    assert place_of(data_dir, fallback.experiment_id) == (1, level_of(1, []))
    assert place_of(data_dir, duplicate(data_dir, first)) == (2, level_of(2, []))
    accept(data_dir, spec_of(data_dir, fallback.experiment_id), fallback.experiment_id)
    assert place_of(data_dir, submit(data_dir, PROPOSAL)) == (3, level_of(3, [2]))


def test_a_proposal_is_judged_once_and_its_command_names_the_family(data_dir: DataDir) -> None:
    experiment = find_experiment(data_dir, submit(data_dir, PROPOSAL))
    assert why_no_rounds(experiment.spec) == "it is a proposal of a family, which is judged once"
    assert why_no_rounds(PROPOSAL) is None
    assert command_line(experiment.spec) == command_line(PROPOSAL)
    assert "--set=family=agent-7" in command_line(PROPOSAL)
    trials = investigation(experiment.spec, experiment.experiment_id, "inductor", "raises")
    assert (trials.family, trials.family_place) == (None, None)


@pytest.mark.parametrize("name", ["", "../x", "-x", "x y", "x" * 65, ".."])
def test_a_family_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidSpec, match="must be at most 64 letters"):
        replace(PROPOSAL, family=name)


def test_a_family_is_of_experiments_that_compare_speeds(data_dir: DataDir) -> None:
    with pytest.raises(RunnerError, match="compares no speeds"):
        replace(PROPOSAL, scenario="accuracy")
