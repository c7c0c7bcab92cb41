"""A backend that draws other random numbers than the baseline is judged by what can be compared."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec
from breakeven.runner.worker.event_log import EventLog
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.parity import Parity
from breakeven.storage.words.parity import parity_text, parity_words
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy

SPEC = experiment_spec(80, model=ModelSpec(dropout="keep"))
OFF = replace(SPEC, model=ModelSpec(dropout="off"))
EVEN = [-6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
REHEARSED = [2 - step / 100 for step in range(40)]


def dropout(compiled: bool, number: int, share: float) -> dict[str, Any]:
    kept, scale = round(10_000 * (1 - share)), 1 / (1 - share)
    squares = kept * scale**2
    return {
        "compiled": compiled,
        "number": number,
        "operation": "dropout",
        "p": 0.1,
        "tried": 10_000,
        "zeros": 10_000 - kept,
        "sum": kept * scale,
        "squares": squares,
        "backward": squares,
    }


class Recorded(NamedTuple):
    """A backend whose losses lie `offset` beside the baseline's, and its test of random numbers:
    `shift` lies between its changes and those without a compiler, `shares` are what its two
    dropouts dropped, where 10 % of 10,000 are dropped without a compiler."""

    offset: float = 0.2
    same: bool = False
    shift: float = 0.0
    rehearsed: Sequence[float] | None = REHEARSED
    shares: Sequence[float] = (0.101, 0.099)
    inference_draws: bool = False

    def write(self, log: EventLog) -> None:
        draws = [1 + draw / 10 for draw in EVEN * 2]
        log.append(
            "random_numbers",
            same=self.same,
            num_draws=12,
            loss_by_draw=draws,
            inference_draws=self.inference_draws,
        )
        if self.rehearsed is None:
            log.append("rehearsal", reason="it draws more than dropout does")
        elif not self.same:
            drawn = [*EVEN, *(draw + self.shift for draw in EVEN)]
            distances = [(draw - other) ** 2 for draw, other in combinations(drawn, 2)]
            log.append("redraw", tensor="head.weight", change=1.0, distances=distances)
            perturbed = [loss * 1.00001 for loss in REHEARSED]
            for form, losses in (
                ("eager", REHEARSED),
                ("perturbed", perturbed),
                ("compiled", self.rehearsed),
            ):
                log.append("rehearsal", form=form, loss_by_step=list(losses))
            log.extend("dropout", [dropout(False, number, 0.1) for number in range(2)])
            log.extend("dropout", [dropout(True, *share) for share in enumerate(self.shares)])


def parities(
    folder: Path, spec: ExperimentSpec, backends: Sequence[Recorded | float], **environment: Any
) -> list[Parity]:
    """Of backends of one experiment, those of a number without a test of their random numbers."""
    names = tuple(f"inductor:case={number}" for number in range(len(backends)))
    spec, losses = replace(spec, backends=names), falling_losses(80)
    for number, arm in enumerate(spec.arms, start=-2):
        moved = backends[number] if number >= 0 else 1e-5 * (arm.role == "control")
        run = Recording(folder, arm.label, spec).claim().start(environment=environment)
        offset = moved.offset if isinstance(moved, Recorded) else moved
        shifted = [loss + offset for loss in losses]
        run.blocks([0.1] * 8, shifted, 3.0 if number >= 0 else 0.0)
        if isinstance(moved, Recorded):
            moved.write(run.log)
        run.evaluation(0.8).end()
    with Store.in_memory(DataDir(folder.parent)) as store:
        return [result.parity for result in compare(store, EXPERIMENT_ID).results if result.parity]


WRONG = [loss + 0.1 * (step >= 5) for step, loss in enumerate(REHEARSED)]
# The control is off by 2e-5 at step 0, so the band is 2e-4 wide on either side.
HARDLY = [*REHEARSED[:5], REHEARSED[5] + 3e-4, *REHEARSED[6:]]
JUDGED: dict[str, tuple[dict[str, Any], str, int | None, str]] = {
    "other random numbers alone": (
        {},
        "holds",
        None,
        "it draws other random numbers than without a compiler; without dropout the loss "
        "stays within 0 x the band over the first 30 of 40 steps",
    ),
    "wrong arithmetic, though dropout drops as many in rehearsal": (
        {"rehearsed": [loss + 0.1 for loss in REHEARSED], "shares": (0.1, 0.1)},
        "broken",
        0,
        "",
    ),
    "no rehearsal": (
        {"rehearsed": None},
        "unknown",
        None,
        "no step without random numbers could be compared",
    ),
    "the same losses of a backend that draws the same numbers": ({"same": True}, "broken", 0, ""),
    "a backend that is wrong without dropout": (
        {"rehearsed": WRONG},
        "broken",
        None,
        "without dropout the loss leaves the band at step 5",
    ),
    "a dropout that drops twice as many is named": (
        {"shares": (0.1, 0.2)},
        "broken",
        None,
        ", but dropout 2 of 2 (p = 0.1) drops 20.0 % instead of 10.0 %",
    ),
    "steps in another direction": (
        {"shift": 100.0},
        "broken",
        None,
        "change the weights in another direction",
    ),
    # The baseline's loss falls from 2 to 1.
    "a training that learned nothing may owe that to its numbers": (
        {"offset": 1.5},
        "unknown",
        None,
        "but it is not known how far other random numbers alone",
    ),
    "so may one that learned more": ({"offset": -1.5}, "unknown", None, ""),
    # Evenly from 2 to 1: the first five have a mean of 2 - 2/79, the last eight of 1 + 3.5/79.
    "a loss worse than nothing by as much as was learned": (
        {"offset": 15.0},
        "broken",
        0,
        "which is higher by more than 2 times all that was learned (1.861)",
    ),
    "a loss off by a third of what was learned is not called the same": (
        {"offset": 0.33},
        "unknown",
        None,
        "repeat it without dropout (model.dropout = off)",
    ),
    # 1e-3 is a tenth of a percent of what other numbers make of a loss, 0.4, and outside the band.
    "losses that agree at first are judged by the band": ({"offset": 1e-3}, "broken", 0, ""),
    "a rehearsal hardly outside its band": (
        {"rehearsed": HARDLY},
        "unknown",
        None,
        "without dropout the loss leaves the band at step 5 and is up to 1.5 x the band off",
    ),
    "a dropout that is wrong beside such a rehearsal": (
        {"rehearsed": HARDLY, "shares": (0.1, 0.2)},
        "broken",
        None,
        "",
    ),
    "random numbers in inference, whatever training says": (
        {"offset": 0.0, "same": True, "inference_draws": True},
        "broken",
        None,
        "it answers the same samples differently each time",
    ),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Parity]:
    recorded = [Recorded(**case) for case, *_ in JUDGED.values()]
    verdicts = parities(tmp_path_factory.mktemp("judged") / "runs", SPEC, recorded)
    return dict(zip(JUDGED, verdicts, strict=True))


@pytest.mark.parametrize("case", JUDGED)
def test_what_other_random_numbers_explain(judged: dict[str, Parity], case: str) -> None:
    parity, (_, verdict, first, said) = judged[case], JUDGED[case]
    assert (parity.verdict, parity.first_step_outside) == (verdict, first)
    assert said in str(parity_words(parity))
    if case.startswith("wrong arithmetic"):
        assert "without dropout" not in str(parity_words(parity))
    if case == "other random numbers alone":
        assert parity_text(parity) == "matches"


def test_untested_random_numbers_leave_parity_open(data_dir: DataDir) -> None:
    """On a GPU; on the CPU compilers draw the same numbers, and without dropout none are drawn."""

    def judged_again(
        name: str, device: str, *offsets: float, spec: ExperimentSpec = SPEC
    ) -> list[Parity]:
        return parities(data_dir.path / name / "runs", spec, offsets, device_type=device)

    # The baseline's loss falls from 2 to 1, so that at 1.5 a backend learned nothing.
    gpu = judged_again("gpu", "cuda", 0.2, 1.5, 2.5, math.nan)
    assert [parity.verdict for parity in gpu] == ["unknown", "unknown", "broken", "broken"]
    assert "but not after this run" in str(parity_words(gpu[0]))
    assert "higher by more than 2 times all that was learned" in str(parity_words(gpu[2]))
    for name, device, spec, verdict in (
        ("cpu", "cpu", SPEC, "broken"),
        ("off", "cuda", OFF, "broken"),
        ("speed", "cpu", replace(SPEC, scenario="speed"), "unknown"),  # which never tests
    ):
        assert [parity.verdict for parity in judged_again(name, device, 0.2, spec=spec)] == [
            verdict
        ], name
