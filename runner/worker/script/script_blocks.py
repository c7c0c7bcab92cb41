"""Turns and blocks of a script, which makes the steps itself.

`_blocks` defines the order of all work, and waits at each `yield` for the script's next step.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field

from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.context import RankGroup
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.script.clock import ScriptClock
from breakeven.runner.worker.script.detected_steps import StepEnd
from breakeven.runner.worker.script.loaders import paused_processes
from breakeven.runner.worker.script.recorded_inputs import RecordedInputs
from breakeven.runner.worker.script.script_workload import ScriptWorkload
from breakeven.runner.worker.training.block_timer import (
    BlockTimer,
    NoMoreSteps,
    next_look,
)
from breakeven.runner.worker.training.blocks import Block
from breakeven.runner.worker.training.profiler import StepProfiler
from breakeven.runner.worker.training.step_rows import Steps
from breakeven.runner.worker.turn_source import Turns

BLOCKS_BEFORE_PROFILE = 2
"""Blocks before the profile if the script's length is unknown: one compiles, one is timed."""
SHORTEST = 4
"""Fewest steps of a block that is made shorter because the script may have few steps."""
BLOCKS_OF_SHORT = 10
"""A script with fewer than this many blocks of the specified length gets shorter ones."""
BLOCKS_BESIDE_PROFILE = 4
"""A script of known length is profiled only if this many blocks are timed besides."""


@dataclass
class ScriptSteps(Steps):
    """The steps of a block of a script. In a step, Breakeven's own code takes several times as long
    as when it is repeated, so the numbers of all steps are worked out when the block is over."""

    first: int = 0
    """The number of the first step in the training."""
    ends: list[StepEnd] = field(default_factory=list)
    """What was noted at the end of each step."""
    work_out: Callable[["ScriptSteps"], None] = lambda _: None

    def complete(self) -> None:
        self.work_out(self)


class ScriptBlocks:
    """Cuts a script into blocks of steps, and waits for a turn before each block."""

    def __init__(
        self,
        experiment: ExperimentSpec,
        workload: ScriptWorkload,
        turns: Turns,
        timer: BlockTimer,
        profiler: StepProfiler,
        log: EventLog,
        clock: ScriptClock,
        inputs: RecordedInputs,
        group: RankGroup,
        work_out: Callable[[ScriptSteps], None],
    ) -> None:
        """`work_out` gets the steps of each block when it is over, and fills in their numbers."""
        self._work_out = work_out
        self._clock, self._inputs, self._group = clock, inputs, group
        self._experiment = experiment
        self._workload = workload
        self._turns = turns
        self._timer = timer
        self._profiler = profiler
        self._log = log
        self._plan: Generator[int, None, None] | None = None
        self._profile_turns = profiler.num_turns
        self._begins_at = self._recorded = 0
        self.made = ScriptSteps()
        """Steps of the open block."""
        self._length = 0
        """Number of steps of the open block; 0 if something is to be done before each."""
        self._num_unseen = 0
        """Number of next steps between which there is nothing to do."""
        self.num_blocks = 0
        """Finished blocks."""
        self.num_steps = 0
        """Finished steps since the training, or its repetition for the times alone, began."""
        self.is_waiting = False
        self.is_over = False
        self.ending: Ending | None = None
        """Why the supervisor ended the run; None if the script ended by itself or at its limit."""
        self.starts_again = False
        """Whether the script, if it has ended by itself, is to start again."""
        self._turn_at_hand: Turn | None = None
        self._most_steps: int | None = None
        """Most steps of the next blocks, as the last turn said."""
        self.looks_at_inputs = False
        """Whether to hash the inputs of the next step: in the first block, whose times do not
        count, and at the start of each block, when the device is idle."""

    @property
    def is_begun(self) -> bool:
        return self._plan is not None

    def continue_after(self, step: int, *, is_profiled: bool) -> None:
        """Begins after an earlier attempt's steps; skips the profile if that attempt has one."""
        self.num_steps = self._begins_at = step
        if is_profiled:
            self._profile_turns = 0

    def time_more_after(self, steps: int, turn: Turn | None, num_steps: int) -> None:
        """Makes the blocks follow those of a journal that has these steps; `turn`: the turn in
        which the script started again; `num_steps`: those of the training, 0 if unknown."""
        self._workload.num_steps = num_steps
        self._recorded, self._profile_turns = steps, 0
        self._turn_at_hand = turn
        self._most_steps = None if turn is None else turn.block_steps

    @property
    def journal_step(self) -> int:
        """The number that the next step has in the journal."""
        return self._recorded + self.num_steps

    def begin(self) -> None:
        """Waits for the first turn; the script may then make its first step."""
        self._plan = self._blocks()
        self._advance()

    def step_made(self) -> bool:
        """Counts a step; waits until the next step may begin. Returns whether there was anything to
        do before it."""
        self.num_steps += 1
        if self._num_unseen and not (self._turns.stop_requested or self._timer.has_made_early):
            self._num_unseen -= 1
            self.looks_at_inputs = False
            self._timer.step_made(self.made)
            return False
        self._advance()
        return True

    def end_block(self) -> None:
        """Writes the steps of the open block; the next block begins with the next turn."""
        if self.is_begun and not self.is_over and len(self.made):
            self._advance(ends_block=True)

    def end(self) -> None:
        """Writes the steps of the open block; there will be no further step."""
        if self._plan is not None and not self.is_over:
            self.is_over = True
            with suppress(StopIteration):
                self._plan.throw(NoMoreSteps())

    def _advance(self, *, ends_block: bool = False) -> None:
        """Continues to the next step, or to the end."""
        assert self._plan is not None
        try:
            place = self._plan.throw(NoMoreSteps()) if ends_block else next(self._plan)
        except StopIteration:
            self.is_over = True
        else:
            self.looks_at_inputs = place in (0, self.num_steps - self._begins_at)
            self._num_unseen = self._steps_without_work(place)

    def _steps_without_work(self, place: int) -> int:
        """Number of steps after `place` in the open block before there is something to do."""
        left = [self._length - place, next_look(place) - place]
        if limit := self._experiment.script.steps:
            left.append(limit - self.num_steps)
        return max(0, min(left) - 1)

    def _blocks(self) -> Generator[int, None, None]:
        """Waits for each turn, and yields the place of each step in its block."""
        if self._turn_at_hand is None:
            self._log.enter("waiting")
            self._turns.ready()
        number = 0
        while (turn := self._wait()) is not None:
            if number == BLOCKS_BEFORE_PROFILE:
                self._workload.write()
            is_profiled, length = self._group.share((self._profiles(number), self._block_steps()))
            if is_profiled:
                yield from self._profiled_block(turn)
            else:
                is_early = number < self._experiment.speed.warm_up_blocks
                warm_up = is_early and self._experiment.kind.has_candidates
                yield from self._block(turn, length, warm_up=warm_up)
            self._inputs.write()
            self.ending, self._most_steps = turn.last, turn.block_steps
            self.starts_again = turn.again and turn.last is None
            if self._stops() or turn.last is not None:
                return
            number = self.num_blocks = number + 1
            self._turns.done(finished=False)

    def _wait(self) -> Turn | None:
        if (turn := self._turn_at_hand) is not None:
            self._turn_at_hand = None
            self._log.enter("training")
            return turn
        self.is_waiting = True
        with paused_processes(), self._clock.paused():
            turn = self._turns.wait()
        self.is_waiting = False
        return turn

    def _stops(self) -> bool:
        limit = self._experiment.script.steps
        return self.is_over or self._turns.stop_requested or 0 < limit <= self.num_steps

    def _block(
        self, turn: Turn, num_steps: int, *, warm_up: bool = False
    ) -> Generator[int, None, None]:
        first = self.journal_step
        block = Block(
            first_step=first,
            num_steps=num_steps,
            epoch=0,
            window=first,
            evaluate=False,
            ends_epoch=False,
            warm_up=warm_up,
        )
        self.made = ScriptSteps(first=self.num_steps, work_out=self._work_out)
        is_seen = warm_up or not self.num_blocks
        self._length = 0 if is_seen else num_steps
        return self._timer.steps(block, turn, self.made, self._stops)

    def _block_steps(self) -> int:
        """Number of steps of the next block, up to the profile or the end of the script. Blocks end
        at the same steps in every attempt, to make inputs comparable."""
        length = min(self._usual_steps(), self._most_steps or self._experiment.block_steps)
        ends = [length * round((self.num_steps + length) / length)]
        limit = self._workload.num_steps
        if limit:
            ends += [end for end in (limit - self._profile_steps, limit) if end > self.num_steps]
        return min(ends) - self.num_steps

    def _usual_steps(self) -> int:
        """The specified length of a block, or less if a script of known length would otherwise have
        too few blocks for an interval. A script of unknown length may have few steps, so its first
        blocks are short."""
        longest = self._experiment.block_steps
        if self._experiment.kind.has_candidates:
            return longest
        if self._workload.num_steps:
            shorter = (self._workload.num_steps - self._profile_steps) // BLOCKS_OF_SHORT
        else:
            is_early = self.num_steps < BLOCKS_OF_SHORT * longest
            shorter = 2 * longest // 5 if is_early else longest
        return min(longest, max(SHORTEST, shorter))

    @property
    def _profile_steps(self) -> int:
        """Steps to profile at the end of a script of known length; 0 if it is too short."""
        steps = self._profile_turns * self._profiler.steps_of_turn
        timed = self._workload.num_steps - steps
        return steps if timed >= BLOCKS_BESIDE_PROFILE * self._experiment.block_steps else 0

    def _profiles(self, number: int) -> bool:
        """Whether to profile the block of this number: the last blocks of a script of known length,
        else early blocks, unless a profile makes later steps slower."""
        if not self._workload.num_steps:
            if self._profiler.slows_later_steps:
                return False
            return BLOCKS_BEFORE_PROFILE <= number < BLOCKS_BEFORE_PROFILE + self._profile_turns
        left = self._workload.num_steps - self.num_steps
        return 0 < left <= self._profile_steps

    def _profiled_block(self, turn: Turn) -> Generator[int, None, None]:
        """Trains a block whose time does not count, like a warm-up. Without need of a profile it
        trains the same steps, because blocks end at the same steps in every run."""
        end = self.num_steps + self._profiler.steps_of_turn
        needed = self._profiler.needs_turn()
        profiled = self._profiler.steps(turn.round) if needed else iter(())
        # Possibly in several blocks, because a checkpoint ends a block.
        while self.num_steps < end and not self._stops():
            timed = self._block(turn, end - self.num_steps, warm_up=True)
            for place in timed:
                next(profiled, None)
                try:
                    yield place
                except NoMoreSteps as ended:
                    with suppress(StopIteration):
                        timed.throw(ended)
                    break
        if self.num_steps == end:
            next(profiled, None)
