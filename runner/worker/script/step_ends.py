"""Finds which steps of a script's optimizers end a step of the training.

With one optimizer each of its steps does. Several optimizers (a generator and a discriminator, an
actor and a critic) step in a cycle, which is learned from its first three repetitions; a step of
the training ends with the last member of the cycle.
"""

from collections.abc import Callable

Sizes = Callable[[], dict[int, int]]
REPETITIONS = 3
"""Repetitions of a cycle after which it is known."""
AWAITED = 24
"""Optimizer steps after which an optimizer that has not stepped is no longer waited for."""
LONGEST = 64
"""Optimizer steps without a cycle after which one optimizer alone counts."""


class StepEnds:
    """Follows the steps of optimizers, which are named by their numbers."""

    def __init__(self) -> None:
        self.cycle: tuple[int, ...] = ()
        """The optimizers of a step of the training in their order; empty while it is unknown."""
        self.counting: int | None = None
        """The one optimizer whose steps count, if no cycle was found."""
        self._open: list[int] = []
        """Optimizer steps that belong to no finished step of the training."""
        self._is_first = True
        """Whether no cycle was known before."""

    @property
    def is_learning(self) -> bool:
        return not self.cycle and self.counting is None

    def stepped(self, optimizer: int, sizes: Sizes, *, awaits_others: bool) -> list[int]:
        """Returns how many optimizer steps, from the oldest open one on, make each step of the
        training that is now known to have ended.

        `sizes` returns the number of parameters of each optimizer. `awaits_others`: whether there
        are optimizers that have not stepped, and may be part of the cycle.
        """
        self._open.append(optimizer)
        if self.cycle:
            if self._open == list(self.cycle[: len(self._open)]):
                return self._ended([len(self.cycle)] if len(self._open) == len(self.cycle) else [])
            self.cycle = ()  # the script goes on in another way
        if self.counting is not None and self.counting in self._open:
            return self._ended(self._by_counting())
        waits = awaits_others and len(self._open) < AWAITED
        if self.counting is None and not waits and (learned := self._learned(awaits_others)):
            return self._ended(learned)
        if len(self._open) >= LONGEST:
            self.counting = self._largest(sizes)
            return self._ended(self._by_counting())
        return []

    def remaining(self, sizes: Sizes) -> list[int]:
        """As `stepped`, at the end of the script, whose last steps may not make a whole cycle."""
        if not self._open or self.cycle:
            return []
        self.counting = self._largest(sizes)
        return self._ended(self._by_counting())

    def _largest(self, sizes: Sizes) -> int:
        """The open optimizer with the most parameters."""
        counts = sizes()
        return max(self._open, key=lambda number: counts.get(number, 0))

    def _learned(self, awaits_others: bool) -> list[int]:
        """Sizes of the steps if the last optimizer steps repeat a cycle of all that stepped."""
        steps, optimizers = self._open, set(self._open)
        if len(optimizers) == 1 and self._is_first and not awaits_others:
            self.cycle, self._is_first = (steps[0],), False
            return [1] * len(steps)
        for length in range(len(optimizers), len(steps) // REPETITIONS + 1):
            before = len(steps) - REPETITIONS * length
            cycle = steps[before : before + length]
            if steps[before:] == cycle * REPETITIONS and set(cycle) == optimizers:
                self.cycle, self._is_first = tuple(cycle), False
                while steps[max(before - length, 0) : before] == cycle:
                    before -= length
                return [before] * (before > 0) + [length] * ((len(steps) - before) // length)
        return []

    def _by_counting(self) -> list[int]:
        ends = [place for place, number in enumerate(self._open, 1) if number == self.counting]
        return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]

    def _ended(self, step_sizes: list[int]) -> list[int]:
        del self._open[: sum(step_sizes)]
        return step_sizes
