"""What a run is among the runs of a comparison."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from runner.specs.variants import Role


class _HasRole(Protocol):
    @property
    def role(self) -> str: ...


_Run = TypeVar("_Run", bound=_HasRole)


def of_role(runs: Iterable[_Run], role: Role) -> _Run | None:
    """The first one that has a role; None if none has, as where a run folder is missing."""
    return next((run for run in runs if run.role == role), None)
