"""Evaluates a ladder (`runner.specs.ladder`): the effect of each compiler stage on step time,
memory, compile latency and parity, and the first rung with a fault.

Each rung is compared with the rung below, not with the baseline. It adds one stage, so this stage
alone makes it faster, slower or wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.ladder import RUNGS, Rung, find_rung
from breakeven.storage.comparison.comparison import STORED_CLASSES, compare
from breakeven.storage.comparison.correctness import Check, checks
from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.pairs import beside, speedup_of
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.profile.findings import arm_of
from breakeven.storage.result_caches import memo, revision, stored
from breakeven.storage.statistics.speedups import Ratio, SpeedVerdict, holm, speed_verdict

Fault = Literal["fails", "differs", "loses"]
"""The rung ends before its last step; its numbers differ from the baseline's; or its steps take
surely longer than those of the rung below."""
FAULTS: tuple[Fault, ...] = ("fails", "differs", "loses")
MIN_RUNGS = 2
"""Fewest rungs of a ladder; a single backend has no rung between it and the baseline."""


@dataclass(frozen=True, kw_only=True)
class RungResult:
    """A run on its rung."""

    rung: Rung
    result: Result
    below: str
    """Label of the nearest run below with a timed step; the baseline's for the lowest."""
    step_seconds_below: float | None
    over_below: Ratio | None
    """Times of the run below over this one's, paired by round; above 1 this one is faster."""
    verdict: SpeedVerdict | None
    """Verdict of `over_below`, corrected over all rungs; None if it was not timed."""
    reason: str | None = None
    """Why the run ended early, or why checks do not pass."""
    failed_checks: tuple[Check, ...] = ()
    """Checks of the scenario `accuracy` that do not pass."""

    @property
    def seconds_gained(self) -> float | None:
        """Step time of the run below minus that of this run."""
        own = self.result.measured.step_seconds
        if own is None or self.step_seconds_below is None:
            return None
        return self.step_seconds_below - own

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Faults of this rung, the worst first."""
        parity = self.result.parity
        crashed = any(check.outcome == "failed" for check in self.failed_checks)
        wrong = any(check.outcome == "differs" for check in self.failed_checks)
        is_faulty: dict[Fault, bool] = {
            "fails": crashed or RunState(self.result.state).is_failed,
            "differs": wrong or (parity is not None and parity.is_wrong),
            "loses": self.verdict == "slower",
        }
        return tuple(fault for fault in FAULTS if is_faulty[fault])


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The rungs of an experiment, from the lowest."""

    baseline: Result | None
    rungs: tuple[RungResult, ...]
    is_timed: bool
    """Whether steps were timed and losses compared; otherwise tensors were compared."""
    missing: tuple[Rung, ...]
    """Rungs that the device supports but the experiment omits."""

    def first(self, fault: Fault) -> RungResult | None:
        """The lowest rung with this fault."""
        return next((rung for rung in self.rungs if fault in rung.faults), None)

    @property
    def costliest(self) -> RungResult | None:
        """The rung that loses most time; None if none loses time."""
        losers = [rung for rung in self.rungs if "loses" in rung.faults]
        return min(losers, key=lambda rung: rung.seconds_gained or 0.0, default=None)

    @property
    def is_alarming(self) -> bool:
        """Whether a rung fails, computes wrongly, or loses time that no rung above regains."""
        return any(
            rung.faults and (rung.faults != ("loses",) or self.made_up_by(rung) is None)
            for rung in self.rungs
        )

    def made_up_by(self, loser: RungResult) -> RungResult | None:
        """The lowest rung above `loser` with a shorter step than the rung below `loser`."""
        least = loser.step_seconds_below
        above = self.rungs[self.rungs.index(loser) + 1 :]
        return next(
            (
                rung
                for rung in above
                if least is not None
                and (own := rung.result.measured.step_seconds) is not None
                and own < least
            ),
            None,
        )


@memo(revision)
@stored("ladder", Ladder, RungResult, Rung, Check, *STORED_CLASSES)
def find_ladder(store: Store, experiment_id: str) -> Ladder | None:
    """The ladder from the experiment's present data; None if it has fewer than two rungs, compares
    caches, or has a failed baseline. Raises `NotInStore`."""
    comparison = compare(store, experiment_id)
    standing = on_rungs(comparison)
    kind = comparison.spec.kind
    baseline = of_role(comparison.results, "baseline")
    # If the baseline fails too, the compiler is not the cause.
    has_failed = baseline is not None and RunState(baseline.state).is_failed
    is_timed = kind.has_speedups
    if not (is_timed or kind.has_checks) or len(standing) < MIN_RUNGS or has_failed:
        return None
    stages = {rung.stage for rung, _ in standing}
    on_cuda = comparison.spec.device.startswith("cuda")
    missing = [
        rung
        for rung in RUNGS
        if rung.stage not in stages and (on_cuda or not rung.captures_cuda_graphs)
    ]
    climbed = (
        _timed(comparison, standing)
        if is_timed
        else _checked(standing, checks(store, experiment_id, comparison.spec))
    )
    return Ladder(
        baseline=baseline,
        rungs=tuple(climbed),
        is_timed=is_timed,
        missing=tuple(missing),
    )


def on_rungs(comparison: Comparison) -> list[tuple[Rung, Result]]:
    """The first run of each rung, from the lowest rung."""
    by_stage: dict[str, tuple[Rung, Result]] = {}
    for result in comparison.results:
        rung = find_rung(arm_of(comparison.spec, result.label)[0])
        if rung is not None:
            by_stage.setdefault(rung.stage, (rung, result))
    return [by_stage[rung.stage] for rung in RUNGS if rung.stage in by_stage]


def _timed(comparison: Comparison, standing: Sequence[tuple[Rung, Result]]) -> list[RungResult]:
    below = of_role(comparison.results, "baseline")
    compared: list[tuple[Rung, Result, Result | None, Ratio | None]] = []
    for rung, result in standing:
        compared.append((rung, result, below, _ratio(below, result)))
        if result.measured.step_seconds is not None:
            below = result
    corrected = holm([None if ratio is None else ratio.p_value for *_, ratio in compared])
    return [
        RungResult(
            rung=rung,
            result=result,
            below="baseline" if under is None else under.label,
            step_seconds_below=None if under is None else under.measured.step_seconds,
            over_below=ratio,
            verdict=None if ratio is None else speed_verdict(ratio, p, comparison.noise_floor),
            reason=result.reason,
        )
        for (rung, result, under, ratio), p in zip(compared, corrected, strict=True)
    ]


def _ratio(below: Result | None, result: Result) -> Ratio | None:
    """Times of the run below over the other's, in the rounds in which both were timed beside the
    baseline."""
    rounds = result.timing.rounds
    if below is not None and below.role != "baseline":
        rounds = beside(below.timing.rounds, rounds)
    return speedup_of(rounds)


def _checked(
    standing: Sequence[tuple[Rung, Result]], all_checks: Sequence[Check]
) -> list[RungResult]:
    climbed = []
    for rung, result in standing:
        own_checks = [check for check in all_checks if check.label == result.label]
        bad = [check for check in own_checks if check.outcome in ("failed", "differs")]
        climbed.append(
            RungResult(
                rung=rung,
                result=result,
                below="baseline",
                step_seconds_below=None,
                over_below=None,
                verdict=None,
                failed_checks=tuple(bad),
                reason="; ".join(f"{check.part}: {_why(check)}" for check in bad) or None,
            )
        )
    return climbed


def _why(check: Check) -> str:
    """Why nothing was compared, or the tensors that differ most, without sizes."""
    return check.message or ", ".join(worst.rpartition(", ")[0] for worst in check.worst)
