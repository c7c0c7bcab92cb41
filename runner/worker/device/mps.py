"""Apple's devices through Metal (MPS). Nothing here could be tried: no such device was at hand."""

from typing import Any

import torch
from torch import Tensor

from breakeven.runner.worker.device.base import (
    NOT_RECORDED,
    NOT_TRIED,
    Device,
    Driver,
    Unavailable,
)
from breakeven.runner.worker.device.measuring import EventClock, MemoryUse

RANDOM_STATE = "mps"
"""Name of the generator's state in a checkpoint."""


class MpsClock(EventClock):
    """Recording an event hands the work so far to the device, which it would otherwise be when
    there is enough of it, and does not wait for it."""

    def _synchronize(self) -> None:
        torch.mps.synchronize()

    def _new_event(self) -> torch.mps.Event:
        return torch.mps.Event(enable_timing=True)

    def _record(self, event: torch.mps.Event) -> None:
        event.record()


class MpsMemory:
    """What Metal has given to this process; of a highest amount torch keeps no count here."""

    def reset(self) -> None:
        """There is no mark to set back."""

    def read(self) -> MemoryUse:
        return MemoryUse(peak_bytes=None, reserved_bytes=torch.mps.driver_allocated_memory())


class MpsDevice(Device):
    """The GPU of an Apple chip, `mps`."""

    type = "mps"
    notes = (
        NOT_TRIED,
        "Allocated memory was not recorded: on MPS torch keeps no count of its peak.",
    )

    @property
    def name(self) -> str:
        return torch.backends.mps.get_name()

    def clock(self) -> MpsClock:
        return MpsClock()

    def memory(self) -> MpsMemory:
        return MpsMemory()

    def open_driver(self, experiment_id: str) -> Driver:
        raise Unavailable(f"{NOT_RECORDED}: Metal does not tell them.")

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def seed(self, number: int) -> None:
        super().seed(number)
        torch.mps.manual_seed(number)

    def random_state(self) -> dict[str, Tensor]:
        return {RANDOM_STATE: torch.mps.get_rng_state()}

    def set_random_state(self, state: dict[str, Any]) -> None:
        torch.mps.set_rng_state(state[RANDOM_STATE])
