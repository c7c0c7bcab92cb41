"""Records what a script's steps were given, by hashes, so that runs can be compared."""

import hashlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from breakeven.runner.worker.context import RankGroup
from breakeven.runner.worker.data.splits import tensor_bytes
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.script.detected_steps import batch_size

ON_HOST = ("python", "numpy", "torch")
"""Generators that show who drew other numbers; a device's may differ without a fault."""


class EvaluatedInputs:
    """What an evaluation gives to the models: a hash of the first sample's and the last sample's
    whole numbers, and of the number of samples. Floating-point numbers are left out, because they
    may have another precision, and so is the size of batches."""

    def __init__(self) -> None:
        self._ends: list[list[Tensor]] = []
        self._num_samples = 0

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Adds a call of a model, without waiting for the device."""
        size, _ = batch_size(args, kwargs)
        numbers = [
            value
            for value in (*args, *kwargs.values())
            if isinstance(value, Tensor) and value.ndim > 1 and not value.is_floating_point()
        ]
        self._num_samples += size or 0
        if not self._ends:
            self._ends = [[value[0].clone() for value in numbers if len(value)], []]
        self._ends[1] = [value[-1].clone() for value in numbers if len(value)]

    def take(self) -> str | None:
        """The hash of the evaluation that is over; None if none was seen."""
        if not self._num_samples:
            return None
        digest = hashlib.sha256(str(self._num_samples).encode())
        for value in [value for values in self._ends for value in values]:
            digest.update(tensor_bytes(value))
        self._ends, self._num_samples = [], 0
        return digest.hexdigest()[:16]


class RecordedInputs:
    """Writes the `inputs` events: at once, or of several ranks together after a block, because
    ranks that waited for each other within a step might never meet."""

    def __init__(self, log: EventLog, group: RankGroup) -> None:
        self._log, self._group = log, group
        self._rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        """Adds the fields of an event; all ranks do so at the same steps."""
        self._rows.append(row)
        if self._group.size == 1:
            self.write()

    def write(self) -> None:
        """Writes the events of the block that is over."""
        by_rank = self._group.gather(self._rows)
        self._rows = []
        for rows in zip(*by_rank, strict=False):
            self._log.append("inputs", **_of_all(rows))


def _of_all(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The event of a step of several ranks: the hashes of all, in the order of ranks."""
    joined, random = dict(rows[0]), dict(rows[0]["random"])
    for rank, row in enumerate(rows[1:], 1):
        random |= {f"{name} of rank {rank}": row["random"].get(name) for name in ON_HOST}
    if all("sha256" in row for row in rows):
        floats = [len(row["floats"]) for row in rows]
        state = [
            sum(floats[:rank]) + place
            for rank, row in enumerate(rows)
            for place in row.get("state", ())
        ]
        joined["sha256"] = "-".join(row["sha256"] for row in rows)
        joined["floats"] = [entry for row in rows for entry in row["floats"]]
        joined |= {"state": state} if state else {}
    return {**joined, "random": {name: sha256 for name, sha256 in random.items() if sha256}}
