"""Compares the numbers of a replay, a second measurement, with the recorded ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from breakeven.runner.folders.states import RunState
from breakeven.runner.loss_band import LOSS_FLOORS, SAFETY_FACTORS
from breakeven.runner.specs.variants import parse_backend
from breakeven.storage import queries
from breakeven.storage.comparison.results import Result
from breakeven.storage.difference.sides import Differing, Side, comparable, differing, load_sides
from breakeven.storage.difference.speedups import ratio_of_speedups
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import backend_rows, catalog, compute
from breakeven.storage.statistics.intervals import Spread
from breakeven.storage.statistics.speedups import MIN_MARGIN

MAX_REPLAYS = 30
"""Number of replays that are examined, the newest ones."""
PATIENCE = 60.0
"""Longest time for computing their numbers, which are then stored."""
Reason = Literal["missing", "no control", "yardstick", "compiled once", "not known yet",
                 "other training", "other work"]  # fmt: skip
"""Why a number is not judged: one of the two is missing; the spread of equal processes is unknown;
the number is the measure of the machine's speed; nothing else was compiled twice on the machine, or
that is not known yet; weights or data differ; the model differs."""
MACHINE = ["host", "device", "torch"]


def spread_of_compiling(
    store: Store, experiment_id: str, patience: float = PATIENCE
) -> Spread | Reason:
    """The standard deviation of the logarithms, over the replays of other experiments that share
    machine, device and torch with this replay and its original. A reason instead, if replay and
    original differ in these, or no other experiment was compiled twice there."""
    replays = queries.list_experiments(store).set_index("experiment_id")["replay_of"].dropna()
    original = replays[experiment_id]
    others = replays[replays != original].head(MAX_REPLAYS)
    wanted = {experiment_id, original, *others.index, *others}
    compute(store, patience, only=sorted(wanted))
    listed = catalog(store)
    mine = listed[listed["experiment_id"].isin(wanted)]
    if not mine["known"].all():
        return "not known yet"
    rows = backend_rows(store, mine)
    rows = rows[rows["host"].notna() & (rows["compile_seconds"].astype(float) > 0)]
    rows = rows.assign(original=rows["experiment_id"].map(replays).fillna(rows["experiment_id"]))
    machines = rows.loc[rows["original"] == original, MACHINE].drop_duplicates()
    if len(machines) != 1:
        return "compiled once"
    same = rows[rows["original"] != original].merge(machines, on=MACHINE)
    groups = same.groupby(["original", "backend"])["compile_seconds"]
    found = Spread.pooled([list(map(math.log, group)) for _, group in groups])
    return found or "compiled once"


ReplayVerdict = Literal["inside", "outside", "not judged"]


@dataclass(frozen=True, kw_only=True)
class ReplayedNumber:
    """One number, recorded and measured again; named as in METRICS. None means unmeasured."""

    name: str
    recorded: float | None
    again: float | None
    low: float | None = None
    """The range in which the replay's value lies in 95 % of cases; None if unknown."""
    high: float | None = None
    reason: Reason | None = None

    @property
    def verdict(self) -> ReplayVerdict:
        if self.again is None or self.low is None or self.high is None:
            return "not judged"
        return "inside" if self.low <= self.again <= self.high else "outside"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A recorded run and its replay, each within its experiment."""

    sides: tuple[Side, Side]
    results: tuple[Result, Result]
    compiling: Spread | Reason
    """How far the logarithm of compile latency varies on this machine, or why that is unknown."""

    def figures(self) -> list[ReplayedNumber]:
        """The numbers that at least one of the two has."""
        made = (self._speedup(), self._step_seconds(), self._compile_seconds(),
                self._peak_memory(), self._final_loss())  # fmt: skip
        return [one for one in made if (one.recorded, one.again) != (None, None)]

    def _speedup(self) -> ReplayedNumber:
        """The ratio of two speedups depends on four processes, each with the spread of equal
        processes. The range is at least as wide as the rounds of both measurements imply."""
        spread = Spread.pooled(map(_paces, self.sides))
        return self._judged("speedup", spread, 4, least=self._by_rounds())

    def _step_seconds(self) -> ReplayedNumber:
        """The step time; its range is scaled by the change of the equal processes' step times."""
        equals = [_logs(side, "step_seconds") for side in self.sides]
        variances = 2 + sum(1 / len(group) for group in equals if group)
        if self.results[0].role != "backend":
            return self._number("step_seconds", reason="yardstick")
        # Rounds in which the run is slower make its speedup lower and its step time higher.
        above, below = self._by_rounds()
        return self._judged("step_seconds", Spread.pooled(equals), variances,
                            least=(below, above), pace=pace(self.sides) or 1.0)  # fmt: skip

    def _compile_seconds(self) -> ReplayedNumber:
        """The compile latency; its range comes from other compilations repeated on this machine."""
        return self._judged("compile_seconds", self.compiling, 2)

    def _peak_memory(self) -> ReplayedNumber:
        """Peak memory; its range comes from equal processes and is at least the margin of speeds
        that are called the same."""
        spread = Spread.pooled(_logs(side, "peak_memory_bytes") for side in self.sides)
        least = math.log1p(MIN_MARGIN)
        return self._judged("peak_memory_bytes", spread, 2, least=(least, least))

    def _final_loss(self) -> ReplayedNumber:
        """The final loss; its range comes from trainings with minimally changed weights and is at
        least the effect of rounding."""
        spread = Spread.pooled(_equals(side, "final_loss") for side in self.sides)
        found = self._number("final_loss", reason=self._why_not("final_loss"))
        if found.reason is None and spread is None:
            return replace(found, reason="no control")
        if found.reason is None and not comparable(*self.sides).learning:
            return replace(found, reason="other training")
        if spread is None or found.recorded is None or found.reason is not None:
            return found
        half = max(spread.half_width(2), _rounding(self.sides[0]))
        return replace(found, low=found.recorded - half, high=found.recorded + half)

    def _judged(
        self,
        name: str,
        spread: Spread | Reason | None,
        variances: float,
        *,
        least: tuple[float, float] = (0.0, 0.0),
        pace: float = 1.0,
    ) -> ReplayedNumber:
        """Computes the range on logarithms: around `pace` times the recorded value, the prediction
        interval of `variances` times the variance, and at `least` this far below and above."""
        unknown = None if isinstance(spread, Spread) else spread or "no control"
        found = self._number(name, reason=self._why_not(name) or unknown)
        if not isinstance(spread, Spread) or found.recorded is None or found.reason is not None:
            return found
        below, above = (max(spread.half_width(variances), one) for one in least)
        middle = found.recorded * pace
        return replace(found, low=middle * math.exp(-below), high=middle * math.exp(above))

    def _number(self, name: str, reason: Reason | None) -> ReplayedNumber:
        before, after = (one.value(name) for one in self.results)
        return ReplayedNumber(name=name, recorded=before, again=after, reason=reason)

    def _why_not(self, name: str) -> Reason | None:
        """Why values cannot be compared; a diverged loss or a latency of 0 counts as missing."""
        for value in (one.value(name) for one in self.results):
            if value is None or not math.isfinite(value) or value == 0:
                return "missing"
        return None if comparable(*self.sides).speed else "other work"

    def _by_rounds(self) -> tuple[float, float]:
        """Distances below and above the recorded speedup that rounds alone explain, as logarithms:
        from the quotient of the two speedups to the ends of its interval. 0 if one speedup has no
        interval."""
        before, after = (one.speedup for one in self.results)
        if before is None or after is None:
            return 0.0, 0.0
        quotient, low, high = ratio_of_speedups(before, after)
        if low is None or high is None:
            return 0.0, 0.0
        # The new speedup is too low if even `high` is below 1, too high if even `low` is above 1.
        return math.log(high / quotient), math.log(quotient / low)


def pace(sides: tuple[Side, Side]) -> float | None:
    """Step time of baseline and controls on the second side over that on the first: the ratio of
    geometric means. None without them."""
    logs = [_logs(side, "step_seconds") for side in sides]
    if not all(logs):
        return None
    before, after = (sum(group) / len(group) for group in logs)
    return math.exp(after - before)


def _equals(side: Side, name: str) -> list[float]:
    """The known values of a number for the equal processes of a side, baseline and controls."""
    values = [getattr(one.measured, name) for one in side.comparison.results
              if one.role in ("baseline", "control")]  # fmt: skip
    return [value for value in values if value is not None and math.isfinite(value)]


def _logs(side: Side, name: str) -> list[float]:
    return [math.log(value) for value in _equals(side, name) if value > 0]


def _paces(side: Side) -> Sequence[float]:
    """Logarithms of the step times of baseline and controls over the baseline's, by rounds."""
    controls = [one.speedup.median for one in side.comparison.results
                if one.role == "control" and one.speedup]  # fmt: skip
    return [0.0, *(-math.log(median) for median in controls)]


def _rounding(side: Side) -> float:
    """Change of a loss that rounding alone explains: the least half width of parity's band."""
    band, precision = side.comparison.loss_band, side.spec.training.precision
    first_loss = abs(float(band["baseline"].iloc[0])) if len(band) else 0.0
    return SAFETY_FACTORS[precision] * LOSS_FLOORS[precision] * first_loss


CHOSEN = ("backends", "controls", "model.dropout")
"""Settings that a replay may change itself, because it has only the runs that it needs."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The replay of a run, compared with the run."""

    label: str
    recorded: Side
    again: Side
    figures: tuple[ReplayedNumber, ...]
    pace: float | None
    """Step time of baseline and controls now over then: the machine's effect, not the backend's."""
    parity: tuple[str | None, str | None]
    """The recorded verdict and that of the replay."""
    differs: tuple[Differing, ...]
    """Differences in machine, software, data and settings."""

    @property
    def is_over(self) -> bool:
        return not any(RunState(one.state).is_active for one in self.again.comparison.results)

    @property
    def has_finished(self) -> bool:
        return all(one.state == RunState.FINISHED for one in self.again.comparison.results)

    def count(self, verdict: ReplayVerdict) -> int:
        return sum(figure.verdict == verdict for figure in self.figures)


def replays_of(store: Store, experiment_id: str) -> list[str]:
    """Ids of the experiments that replay runs of this one, newest first."""
    listed = queries.list_experiments(store)
    return list(listed.loc[listed["replay_of"] == experiment_id, "experiment_id"])


def load_replay(store: Store, experiment_id: str, patience: float = PATIENCE) -> Replay:
    """A replay with its original; raises `NotInStore` if it is no replay or lacks its original.

    `patience`: longest time in seconds for computing unknown numbers of other replays.
    """
    spec = queries.experiment_spec(store, experiment_id)
    if spec.replay_of is None:
        raise NotInStore(f"experiment {experiment_id!r} measures no other one again")
    if spec.replay_of == experiment_id:
        raise NotInStore(f"experiment {experiment_id!r} says that it measures itself again")
    recorded, again = load_sides(store, [spec.replay_of, experiment_id])
    label = parse_backend(spec.backends[0]).label if spec.backends else "baseline"
    before, after = recorded.result(label), again.result(label)
    figures: list[ReplayedNumber] = []
    if before is not None and after is not None:
        compiling: Spread | Reason = "missing"
        if after.measured.compile_seconds is not None:
            compiling = spread_of_compiling(store, experiment_id, patience)
        pair = Pair(sides=(recorded, again), results=(before, after), compiling=compiling)
        figures = pair.figures()
    differs = [one for one in differing([recorded, again])
               if one.kind != "setting" or one.name not in CHOSEN]  # fmt: skip
    return Replay(
        label=label,
        recorded=recorded,
        again=again,
        figures=tuple(figures),
        pace=pace((recorded, again)),
        parity=(_parity(before), _parity(after)),
        differs=tuple(differs),
    )


def _parity(result: Result | None) -> str | None:
    return result.parity.verdict if result is not None and result.parity is not None else None
