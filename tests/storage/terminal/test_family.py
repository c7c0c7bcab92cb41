"""What a family changes in the result of an experiment."""

import json
from dataclasses import replace

import pytest

from breakeven.runner.experiments.families import level_of
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.__main__ import main
from breakeven.storage.statistics.speedups import in_family
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)

SPEC = experiment_spec(num_steps=200, family="agent-7")


def proposed(place: int, spec: ExperimentSpec = SPEC) -> ExperimentSpec:
    return replace(spec, family_place=place, family_level=level_of(place, []))


def test_corrected_p_values_count_below_the_level_as_others_below_one_in_twenty() -> None:
    assert in_family([0.0008, None, 0.9], 0.001) == [pytest.approx(0.04), None, 1.0]
    assert in_family([0.04], None) == [0.04]


@pytest.mark.heavy
@pytest.mark.parametrize(("place", "verdict"), [(1, "faster"), (37, "unsure")])
def test_the_same_rounds_are_enough_for_the_first_proposal_and_not_for_a_later_one(
    data_dir: DataDir, place: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """11 paired rounds that agree have p = 2 / 2^11 = 0.00098; the levels are 0.011 and 0.000034,
    which takes 16 rounds: 2 / 2^16 = 0.0000305."""
    spec = proposed(place, replace(experiment_spec(num_steps=120), family="agent-7"))
    record_experiment(data_dir.runs, spec)
    show = ["show", "--wide", EXPERIMENT_ID, "--data-folder", str(data_dir.path)]
    main([*show, "--json"])
    result = json.loads(capsys.readouterr().out)
    inductor = result["runs"][-1]
    assert inductor["speedup"]["n"] == 11
    assert inductor["numbers"]["speed_verdict"] == verdict
    assert result["family"] == {"name": "agent-7", "place": place, "level": level_of(place, [])}
    main([*show, f"--markdown={data_dir.path / 'pr.md'}"])
    needs = {1: "p < 0.011 in at least 6 rounds", 37: "p < 3.4e-05 in at least 16 rounds"}[place]
    said = f"Proposal {place} of the family agent-7; needs {needs}"
    assert f"minor warning: {said}" in capsys.readouterr().out
    assert said.replace("<", "&#60;") in (data_dir.path / "pr.md").read_text()


@pytest.mark.heavy
def test_a_result_that_is_over_tells_the_family_what_is_faster(data_dir: DataDir) -> None:
    """The second proposal is slower, which is no acceptance."""
    show = ["show", "--data-folder", str(data_dir.path)]
    for seconds in (0.1, 0.3):
        experiment_id = submit(data_dir, SPEC)
        spec = find_experiment(data_dir, experiment_id).spec
        for arm in spec.arms:
            run = Recording(data_dir.runs, arm.label, spec, experiment_id).claim().start()
            run.blocks([seconds if arm.backend else 0.2] * 20, falling_losses(200)).end()
        for _ in range(2):
            main([*show, experiment_id])
    lines = (data_dir.families / "agent-7").read_text().splitlines()
    assert len(lines) == 3 and lines[1] == f"accepted {lines[0]}"
    following = find_experiment(data_dir, submit(data_dir, SPEC)).spec
    assert following.family_level == level_of(3, [1])
