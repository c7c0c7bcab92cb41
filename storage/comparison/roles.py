"""What a run is among the runs of a comparison."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.variants import Role


class _HasRole(Protocol):
    @property
    def role(self) -> str: ...


class _HasState(Protocol):
    @property
    def state(self) -> str: ...


_Run = TypeVar("_Run", bound=_HasRole)
_Ended = TypeVar("_Ended", bound=_HasState)


def counted(controls: Sequence[_Ended]) -> list[_Ended]:
    """The controls by which parity is judged: those that did not end early, or all if all did."""
    return [one for one in controls if not RunState(one.state).ended_early] or [*controls]


def of_role(runs: Iterable[_Run], role: Role) -> _Run | None:
    """The first one that has a role; None if none has, as where a run folder is missing."""
    return next((run for run in runs if run.role == role), None)
