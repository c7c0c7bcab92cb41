"""What the supervisor writes down of a run: who runs it, how it ended; and where it stands by that.

Both may have been copied here from anywhere, so that what is read is checked.
"""

import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.fields import check_plain
from breakeven.runner.specs.place import parse_cpus

MAX_TIME = 9e9
"""Seconds since the epoch that data frames can hold as a date: the year 2255."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Who runs a run. Times are seconds since the epoch."""

    host: str
    process: ProcessIdentity
    supervisor: ProcessIdentity
    time: float
    devices: tuple[str, ...] = ()
    """Which it was given, where the supervisor placed it."""
    cpus: str | None = None
    """Which its experiment has to itself, such as `0-3`."""
    node: str | None = None
    """The machine that it runs on, where the host that claimed it only answers for it."""

    @classmethod
    def by(
        cls, process: ProcessIdentity, devices: tuple[str, ...] = (), cpus: str | None = None
    ) -> "Claim":
        """A claim made now, on this machine, by the calling process."""
        return cls(
            host=socket.gethostname(),
            process=process,
            supervisor=ProcessIdentity.of(os.getpid()),
            time=time.time(),
            devices=devices,
            cpus=cpus,
        )

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Claim":
        """Reads what `asdict` wrote; raises `TypeError`, `KeyError` or `ValueError` for anything
        else."""
        identities = {key: ProcessIdentity(**content[key]) for key in ("process", "supervisor")}
        devices = tuple(content.get("devices", ()))
        claim = cls(**{**content, **identities, "devices": devices})
        for identity in identities.values():
            _require(type(identity.pid) is int and 0 < identity.pid < 2**31, "pid")
            _require_text(identity.started, "started")
        _require_text(claim.host, "host")
        _require(_is_time(claim.time), "time")
        for name in devices:
            _require_text(name, "devices")
        if claim.node is not None:
            _require_text(claim.node, "node")
        if claim.cpus is not None:
            _require_text(claim.cpus, "cpus")
            parse_cpus(claim.cpus)
        return claim

    @property
    def is_from_this_host(self) -> bool:
        return self.host == socket.gethostname()


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a run ended. `time` is in seconds since the epoch; `reason` is one sentence."""

    state: RunState
    reason: str
    returncode: int | None
    """Exit status of the process, negative for a signal; None if nobody saw it end."""
    time: float

    @classmethod
    def now(cls, state: RunState, reason: str, returncode: int | None) -> "Exit":
        return cls(state=state, reason=reason, returncode=returncode, time=time.time())

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Exit":
        """Reads what `asdict` wrote; raises `TypeError`, `KeyError` or `ValueError` for anything
        else."""
        ended = cls(**{**content, "state": RunState(content["state"])})
        _require(ended.state.is_final, "state")
        _require_text(ended.reason, "reason")
        _require(ended.returncode is None or _is_exit_status(ended.returncode), "returncode")
        _require(_is_time(ended.time), "time")
        return ended


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a run stands, as far as its folder tells. Times are seconds since the epoch."""

    state: RunState
    reason: str | None = None
    """How it ended in a sentence, what is wrong with the files that should say so, or what a run
    that has not ended waits for, if it is disk space."""
    claimed: float | None = None
    ended: float | None = None


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < MAX_TIME  # type: ignore[operator]


def _is_exit_status(value: object) -> bool:
    return type(value) is int and abs(value) < 2**31


def _require_text(value: object, field: str) -> None:
    _require(isinstance(value, str), field)
    check_plain(field, value)


def _require(condition: bool, field: str) -> None:
    if not condition:
        raise ValueError(f"its {field} is none")
