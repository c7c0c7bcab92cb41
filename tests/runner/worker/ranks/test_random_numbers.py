"""Two ranks check together whether a backend draws the random numbers that eager draws."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec
from breakeven.storage.statistics.random_numbers import find_dropout_faults
from tests.helpers.loop import experiment, of_kind
from tests.runner.worker.ranks.rank_loop import DRAWING, Training, journal_of, train_together

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


def with_dropout(parallel: str) -> ExperimentSpec:
    spec = experiment(model=ModelSpec(dropout="keep"), backends=("eager", *DRAWING))
    return replace(spec, devices=("cpu", "cpu"), parallel=parallel)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    spec = with_dropout("ddp")
    labels = {arm.backend: arm.label for arm in spec.arms if arm.backend}
    requests = [Training(name, spec, label) for name, label in labels.items()]
    train_together(folder, [*requests, Training("parts", with_dropout("fsdp"), "eager")])
    return folder


def faults(events: list[dict[str, Any]]) -> list[Any]:
    rows = of_kind(events, "dropout")
    eager, compiled = ([row for row in rows if row["compiled"] is flag] for flag in (False, True))
    assert len(eager) == len(compiled) > 0
    return find_dropout_faults(eager, compiled)


def test_what_draws_as_eager_does_is_checked_no_further(folder: Path) -> None:
    events = journal_of(folder, "eager")
    (check,) = of_kind(events, "random_numbers")
    assert check.get("error") is None and check["same"] and check["num_draws"] == 2
    assert check["same_seed"] < 1e-6 * check["other_seeds"]
    assert len(check["loss_by_draw"]) == 4 and not of_kind(events, "rehearsal")


def test_what_draws_its_own_computes_the_same_without_dropout_and_drops_as_many(
    folder: Path,
) -> None:
    """The probes of both ranks are counted together: each has half of every batch."""
    events = journal_of(folder, "own_numbers")
    (check,) = of_kind(events, "random_numbers")
    assert check.get("error") is None and not check["same"]
    forms = {
        rehearsal["form"]: rehearsal["loss_by_step"] for rehearsal in of_kind(events, "rehearsal")
    }
    assert set(forms) == {"eager", "perturbed", "compiled"}
    assert forms["compiled"] == pytest.approx(forms["eager"], rel=1e-4)
    assert forms["perturbed"] != forms["eager"] and len(forms["eager"]) == 12
    assert faults(events) == []


def test_a_dropout_that_drops_too_much_is_found(folder: Path) -> None:
    assert {fault.what for fault in faults(journal_of(folder, "dropout_wrong_rate"))} == {"share"}


def test_weights_in_parts_are_recorded_as_not_checked(folder: Path) -> None:
    (check,) = of_kind(journal_of(folder, "parts"), "random_numbers")
    assert "each keep a part of all weights" in check["error"]
