"""Finds the cause of one run's failure: reproduces it, then takes parts of the compiler away.

Each finding rests on trials that were repeated: the fault comes with the part and does not come
without it. `docs/investigate.md` describes the stages.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
import torch._inductor
from torch.utils.collect_env import get_pretty_env_info

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.masking import mask
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import ARM_SETTINGS, NEED_NO_COMPILER, Arm
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.specs.follow_ups import Finding
from breakeven.runner.specs.ladder import RUNGS
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.correctness.batch_tensors import BASELINE
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.failing_program import Program, try_program
from breakeven.runner.worker.investigation.trial_outcomes import (
    PASSES,
    Outcome,
    Trials,
    is_alike,
    is_same,
)
from breakeven.runner.worker.investigation.trial_process import Stopped, TrialProcess
from breakeven.runner.worker.session import open_context
from breakeven.runner.worker.turn_source import Turns

FEWEST_STEPS = 4
"""Steps that are compared at least: CUDA graphs are replayed from the third one on."""
PROGRAM_TRIES = 3
SHARE_FOR_MINIFYING = 0.3
"""Share of the remaining time that the minifier may take."""
SHARE_OF_BUDGET = 0.8
"""Share of the run's time limit after which the answer so far is given."""
STAGES = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
"""Backends of torch of which each adds one stage of the compiler, in the order of the ladder."""
BISECTED = STAGES[2:]
"""Those in which torch's bisector tells parts apart."""
SWITCHES: tuple[tuple[str, Any], ...] = (
    ("emulate_precision_casts", True),
    ("max_fusion_size", 1),
    ("epilogue_fusion", False),
    ("pattern_matcher", False),
    ("split_reductions", False),
    ("cpp.simdlen", 1),
    ("layout_optimization", False),
    ("shape_padding", False),
)
"""Features of Inductor that are switched off one at a time."""
OF_CPP = "cpp."
"""Beginning of the settings of generated C++; devices that capture graphs get Triton."""
SYMBOLIC = "last_batch"
"""Stands for batch sizes that are symbols because the training has them."""
AUTOTUNING = (
    "max_autotune",
    "max_autotune_gemm",
    "max_autotune_pointwise",
    "coordinate_descent_tuning",
)


Attempt = Callable[[str, Arm], Outcome]
"""Makes a trial of an arm, for a stage of the search."""


def investigate(run: RunDir, spec: RunSpec, log: EventLog, turns: Turns) -> bool:
    """Searches the cause of a failure; other processes load the model and train. False if the
    search was stopped."""
    context = open_context(run, spec, log)
    log.enter("waiting")
    turns.ready()
    finished = not turns.stop_requested and Investigation(context).run(turns)
    if finished:
        log.enter("done")
    return finished


class _Answered(Exception):
    """Ends the search: the finding is complete."""


class Investigation:
    """Searches the cause of one run's failure, in a single turn."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._arm, self._log = context.arm, context.log
        self._wanted = context.experiment.investigation
        self._step = self._wanted.step
        self._finding = Finding()
        self._fault: Outcome | None = None
        """The fault as it was reproduced; None before that."""
        self._is_compiled = True
        """Whether compiled steps differ from those of the same settings without a compiler."""
        self._trials = Trials(context.run, context.log)
        self._folder = context.run.artifacts / "investigation"

    def run(self, turns: Turns) -> bool:
        """Searches; False if the run was stopped earlier."""
        if turns.wait() is None:
            return False
        self._log.enter("checking")
        budget = self._context.experiment.time_limit_seconds
        self._until = time.monotonic() + SHARE_OF_BUDGET * budget
        self._is_stopped: Callable[[], bool] = lambda: turns.stop_requested
        self._trial_process = TrialProcess(self._context.spec, self._is_stopped, self._until)
        try:
            self._finding.environment = mask(get_pretty_env_info())  # type: ignore[no-untyped-call]
            self._search()
        except _Answered:
            pass
        except Stopped:
            if turns.stop_requested:
                return False
            if self._finding.cause == "searching":
                self._finding.cause = "out of time"
        finally:
            self._trial_process.close()
            self._write()
        turns.done(finished=True)
        return True

    @property
    def _reach(self) -> int:
        """How many steps surely include the fault: those of a block are recorded together, so the
        fault may lie behind the recorded ones."""
        return max(self._step + 2 + self._context.experiment.block_steps, FEWEST_STEPS)

    def _search(self) -> None:
        if self._wanted.problem == "memory":
            self._search_memory()
        if not self._context.experiment.workload.has_single_steps:
            self._search_script()
            return
        first, last = self._reproduce()
        lowest = self._find_part(lambda stage, arm: self._compare(stage, arm, first, last))
        if lowest.backend is None:
            self._finding.program_note = "the setting has the fault without a compiler as well"
            self._answer()
        if last - first > 1:
            self._finding.program_note = "the fault needs several steps of the training"
            self._answer("training only" if self._finding.cause == "backend" else None)
        if lowest.backend == "eager":
            self._finding.program_note = "the graphs that Dynamo captured are the fault"
            self._answer()
        self._search_graphs(lowest, first)

    def _search_memory(self) -> None:
        """Repeats the run each time in a process of its own, because whether memory suffices
        depends on all tensors of the training."""
        if self._repeat("reproduction", BASELINE).fails:  # There was enough when the run failed.
            self._answer("unstable")
        outcome = self._repeat("reproduction", self._arm)
        if not self._is_wanted(outcome):
            self._answer("not reproduced")
        self._take(outcome)
        self._find_part(self._repeat)
        self._finding.program_note = "no small program needs as much memory as the training"
        self._answer()

    def _search_script(self) -> None:
        """Tries each graph of the script's first steps alone, once as a whole step, then as one of
        several micro-batches."""
        for arm in self._reproducing():
            for accumulates in (False, True):
                self._trial_process.accumulates = accumulates
                count = self._count_graphs(self._arm, self._step)
                for number in range(count):
                    outcome = self._graph_trial("graphs", arm, self._step, number, count)
                    if self._is_wanted(outcome):
                        self._search_graph_of_script(number, count, outcome)
                        return
                # Another process, because CUDA graphs stay in the mode of the first calls.
                self._trial_process.close()
        self._finding.program_note = "no graph of the script fails alone"
        if self._wanted.problem == "differs":
            self._search_losses_of_script()
        self._answer("not reproduced")

    def _search_losses_of_script(self) -> None:
        """Makes the script's training again from its beginning up to the fault, and judges its
        losses, because a fault may need the steps before, or not come back at all."""
        self._trial_process.accumulates = False
        self._trial_process.close()
        if self._trial_process.ask("can_judge_losses", self._step) is not True:  # nor a crash
            return
        outcome = self._losses_of_script("reproduction", self._arm)
        if not self._is_wanted(outcome):
            return
        self._take(outcome)
        self._finding.program_note = "the fault needs the training from its beginning on"
        self._find_part(self._losses_of_script)
        self._answer()

    def _search_graph_of_script(self, number: int, count: int, outcome: Outcome) -> None:
        self._take(outcome)
        self._finding.graph = number + 1
        lowest = self._find_part(
            partial(self._graph_trial, step=self._step, number=number, count=count)
        )
        if lowest.backend not in (None, "eager"):
            self._reduce(lowest, self._step, number, outcome)

    def _reproducing(self) -> Iterator[Arm]:
        """The arm; then, if it computes what the same settings compute without a compiler,
        these settings, whose numbers may differ from the baseline's."""
        yield self._arm
        alone = _alone(self._arm)
        if alone is not None and self._wanted.problem == "differs":
            self._is_compiled = False
            yield alone

    def _is_wanted(self, outcome: Outcome) -> bool:
        """Whether it is a fault of the kind that the investigated run has."""
        wanted = self._wanted
        if wanted.problem == "memory":
            return outcome.out_of_memory
        if not outcome.fails or (outcome.kind == "differs") != (wanted.problem == "differs"):
            return False
        return outcome.kind != "raises" or is_alike(outcome.error or "", wanted.error)

    def _has_fault(self, outcome: Outcome) -> bool:
        """Whether a trial has the fault of the investigated run, and not another one."""
        return self._is_wanted(outcome) if self._fault is None else is_same(outcome, self._fault)

    def _find_part(self, attempt: Attempt) -> Arm:
        """Names the stage, the backend or the settings that bring the fault; returns the smallest
        arm that has it."""
        finding = self._finding
        while True:
            lowest = self._lowest_stage(attempt)
            smallest, needed = self._smallest(attempt, lowest or self._arm)
            without = _without(self._arm, needed)
            if without == self._arm:
                # Some other setting needs these: what the fault does not need goes as well.
                without = _without(smallest, needed)
            is_known = not needed or [without] == [
                _without(smallest, [setting]) for setting in needed
            ]
            outcome = PASSES if is_known else attempt("settings", without)
            if not self._has_fault(outcome) or without == self._arm:
                break
            # The compiler has the fault as well: the settings are not its cause.
            self._arm = without
        if needed or lowest is None:
            finding.cause, finding.compiler_stage = "setting", _blamed(needed, smallest)
            finding.labels = () if outcome.fails or without == self._arm else (without.text,)
        else:
            is_own = lowest.backend == self._arm.backend and lowest.backend not in STAGES
            finding.cause = "backend" if is_own else "stage"
            known = {name: rung.stage for rung in RUNGS for name in rung.backends}
            known["cudagraphs"] = "CUDA graphs"
            finding.compiler_stage = known.get(str(lowest.backend), lowest.backend)
        self._write()
        return replace(smallest, dynamic=True) if SYMBOLIC in needed else smallest

    def _reproduce(self) -> tuple[int, int]:
        """The first and last (exclusive) step of the shortest part that fails."""
        last = min(self._reach, self._context.experiment.training_steps)
        baseline = self._trial("reproduction", _name(BASELINE), "baseline", last)
        if baseline.out_of_memory or baseline.kind == "crashes":
            self._answer("unstable")  # The baseline of the investigated run did not end so.
        if baseline.fails:
            self._take(baseline)
            self._answer("own code")
        for arm in self._reproducing():
            outcome = self._compare("reproduction", arm, 0, last)
            if self._is_wanted(outcome):
                break
        else:
            self._answer("not reproduced")
        self._take(outcome)
        if outcome.is_unstable:
            self._answer("unstable")
        step = last - 1 if outcome.step is None else outcome.step
        alone = self._compare("reproduction", arm, step, step + 1)
        if is_same(alone, outcome):
            return step, step + 1
        again = self._compare("reproduction", arm, 0, step + 1)
        if not is_same(again, outcome):
            self._answer("unstable")
        return 0, step + 1

    def _lowest_stage(self, attempt: Attempt) -> Arm | None:
        """The lowest stage that fails as the run does; None if only Inductor's settings make it
        fail. Settings that need no compiler are tried without one first, unless compiled steps
        differ from these."""
        arms = [
            _without(self._arm, ["mode", *self._arm.options], backend=backend)
            for backend in _stages(self._arm.backend)
        ]
        alone = _alone(self._arm)
        if alone is not None and not (self._is_compiled and self._wanted.problem == "differs"):
            arms.insert(0, alone)
        below: Arm | None = None
        for arm in arms:
            outcome = attempt("stages", arm)
            if self._has_fault(outcome):
                # Both sides of the boundary are seen once more, because faults may come and go.
                is_stable = is_same(attempt("stages", arm), outcome)
                if not is_stable or (below is not None and attempt("stages", below).fails):
                    self._answer("unstable")
                self._take(outcome)
                return arm
            below = None if outcome.fails else arm
        return None

    def _smallest(self, attempt: Attempt, arm: Arm) -> tuple[Arm, list[str]]:
        """Takes the settings away one by one, as long as the fault stays; returns what remains, and
        the settings without which the fault does not come. Each of these was seen twice to do so,
        because the fault may come and go."""
        needed: list[str] = []
        settings = _settings(arm)
        if arm.backend and self._context.experiment.training.last_batch == "dynamic":
            settings.append(SYMBOLIC)
        for name in settings:
            smaller = _without(arm, [name])
            outcome = attempt("settings", smaller)
            if self._has_fault(outcome):
                arm = smaller
            elif not outcome.fails:
                if attempt("settings", smaller).fails:
                    self._answer("unstable")
                needed.append(name)
                if name == "mode":
                    settings += [feature for feature in _features(arm) if feature not in settings]
        if needed and not self._has_fault(attempt("settings", arm)):
            self._answer("unstable")
        # A mode is a set of features: those that bring the fault stand in its place.
        features = [setting for setting in needed if setting in _features(arm)]
        return arm, [setting for setting in needed if setting != "mode" or not features]

    def _search_graphs(self, arm: Arm, step: int) -> None:
        """Finds the guilty graph of the step, and makes it small."""
        count = self._count_graphs(arm, step)
        for number in range(count):
            outcome = self._graph_trial("graphs", arm, step, number, count)
            if self._has_fault(outcome):
                self._finding.graph = number + 1
                self._write()
                self._reduce(arm, step, number, outcome)
                return
        self._finding.program_note = "no graph of the step fails alone"

    def _count_graphs(self, arm: Arm, step: int) -> int:
        count = self._trial_process.ask("num_graphs", arm, step)
        if isinstance(count, Outcome) or count == 0:
            self._finding.program_note = "the step's graphs could not be captured"
            self._answer("not reproduced" if self._finding.cause == "searching" else None)
        self._finding.num_graphs = count
        return int(count)

    def _graph_trial(self, stage: str, arm: Arm, step: int, number: int, count: int) -> Outcome:
        what = _name(arm)
        if stage == "graphs":
            suffix = "" if arm.backend else f" under {what}"
            what = f"graph {number + 1} of {count}{suffix}"
        return self._trial(stage, what, "graph_outcome", arm, step, number)

    def _reduce(self, arm: Arm, step: int, number: int, outcome: Outcome) -> None:
        if outcome.kills:  # No process lives long enough to make the graph smaller.
            self._try_program(arm, step, number, outcome)
            return
        seconds = SHARE_FOR_MINIFYING * max(0.0, self._until - time.monotonic())
        size = self._trial_process.ask("minify", arm, step, number, outcome, seconds)
        if isinstance(size, int):
            self._finding.num_nodes = size
        self._try_program(arm, step, number, outcome)
        if arm.backend == "inductor":
            if outcome.kind == "differs":
                code = self._trial_process.ask("generated_code", arm, step, number)
                self._finding.generated_code = code if isinstance(code, str) else None
            self._switch_off(arm, step, number)
        if arm.backend in BISECTED:
            self._bisect(arm, step, number, outcome)

    def _switch_off(self, arm: Arm, step: int, number: int) -> None:
        """Names the features of Inductor without which the graph does not fail."""
        for name, value in SWITCHES:
            if name.startswith(OF_CPP) and self._context.device.captures_graphs:
                continue
            changed = replace(arm, options={**arm.options, name: value})
            label = changed.text
            if not self._trial("features", label, "graph_outcome", changed, step, number).fails:
                self._finding.labels = (*self._finding.labels, label)
                self._write()

    def _bisect(self, arm: Arm, step: int, number: int, outcome: Outcome) -> None:
        part = self._trial_process.ask("bisect", arm, step, number, outcome)
        # A part of another stage contradicts the trials, so it is not named.
        if part is None or isinstance(part, Outcome) or part.backend != arm.backend:
            return
        finding = self._finding
        finding.subsystem, finding.subsystem_number = part.subsystem, part.bisect_number
        finding.operation = part.debug_info
        what = " ".join(
            str(word)
            for word in (part.backend, part.subsystem, part.bisect_number)
            if word is not None
        )
        self._trials.made("bisection", what, lambda: outcome, detail=part.debug_info)
        self._write()

    def _try_program(self, arm: Arm, step: int, number: int, outcome: Outcome) -> None:
        """Writes the program, and keeps it if it fails by itself, and only under the backend."""
        title = f"The fault of {arm.label}: {outcome.detail}"
        program = self._trial_process.ask("program", arm, step, number, outcome, title)
        if not isinstance(program, Program):
            self._finding.program_note = "a module of the graph cannot be written as text"
            return
        if not program.is_in(self._folder):  # The graph was reduced again, perhaps to another one.
            self._trials.forget()
        path = program.write(self._folder)
        compiled = [self._run_program([path.name]) for _ in range(PROGRAM_TRIES)]
        plain = [self._run_program([path.name, "eager"]) for _ in range(PROGRAM_TRIES - 1)]
        # An error of another kind, as of a missing file, shows nothing.
        fails, passes = sum(is_same(attempt, outcome) for attempt in compiled), plain.count(PASSES)
        self._finding.program_tries = len(compiled)
        self._finding.program_fails, self._finding.program_passes = fails, passes
        if any(attempt.kind == "times out" for attempt in (*compiled, *plain)):
            self._finding.program_note = "no time was left to try the program"
            return
        if fails < len(compiled) or passes < len(plain):
            self._finding.program_note = "the program does not fail by itself each time"
            return
        self._finding.program, self._finding.num_nodes = program.source, program.num_nodes
        self._write()

    def _run_program(self, arguments: list[str]) -> Outcome:
        def run() -> Outcome:
            seconds = max(1.0, self._until - time.monotonic())
            outcome = try_program([sys.executable, *arguments], self._folder, seconds)
            if self._is_stopped():
                raise Stopped
            return outcome

        what = " ".join(arguments)
        return self._trials.made("program", what, run, has_fault=self._has_fault)

    def _repeat(self, stage: str, arm: Arm) -> Outcome:
        """The outcome of the run itself under an arm, in a process with all of the memory."""
        self._trial_process.close()
        backend = None if arm.role == "baseline" else arm.text
        return self._trial(stage, _name(arm), "repeat", backend, self._reach)

    def _losses_of_script(self, stage: str, arm: Arm) -> Outcome:
        return self._trial(stage, _name(arm), "losses", arm.text, self._step)

    def _compare(self, stage: str, arm: Arm, first: int, last: int) -> Outcome:
        return self._trial(stage, _name(arm), "compare", arm, first, last)

    def _trial(self, stage: str, what: str, name: str, *arguments: Any) -> Outcome:
        has_fault = self._has_fault if what != _name(BASELINE) else lambda outcome: True
        ask = lambda: self._trial_process.ask(name, *arguments)  # noqa: E731
        return self._trials.made(stage, what, ask, has_fault=has_fault)

    def _answer(self, cause: str | None = None) -> None:
        """Ends the search."""
        if cause is not None:
            self._finding.cause = cause
        raise _Answered

    def _take(self, outcome: Outcome) -> None:
        """Takes the facts of the reproduced failure."""
        self._fault = outcome
        self._finding.problem = "differs" if outcome.kind == "differs" else "raises"
        for name in (
            "step",
            "error",
            "traceback",
            "quantity",
            "tensor",
            "max_error",
            "allowed_error",
        ):
            setattr(self._finding, name, getattr(outcome, name))

    def _write(self) -> None:
        fields = asdict(self._finding)
        for name in ("error", "traceback", "program", "generated_code"):
            if fields[name] is not None:
                fields[name] = mask(fields[name])
        self._log.append("investigation_finding", **fields)
        self._log.flush(durable=True)


def _name(arm: Arm) -> str:
    return "no compiler" if arm.role == "baseline" else arm.text


def _stages(backend: str | None) -> Sequence[str | None]:
    """The backends up to one, each with one stage of the compiler more."""
    return STAGES[: STAGES.index(backend) + 1] if backend in STAGES else (*STAGES[:2], backend)


def _settings(arm: Arm) -> list[str]:
    """The settings of an arm; `scope` after what needs one."""
    changed = [name for name in ARM_SETTINGS if getattr(arm, name) != getattr(BASELINE, name)]
    return [*sorted(changed, key=lambda name: name == "scope"), *arm.options]


def _alone(arm: Arm) -> Arm | None:
    """The arm's settings without a compiler, if some act without one."""
    settings = _settings(arm)
    if not any(name in NEED_NO_COMPILER for name in settings):
        return None
    compiler_settings = [name for name in settings if name not in NEED_NO_COMPILER]
    return _without(arm, compiler_settings, backend=None)


def _features(arm: Arm) -> list[str]:
    """The features of Inductor that a mode switches on."""
    if arm.mode is None:
        return []
    listed = torch._inductor.list_mode_options(arm.mode, arm.dynamic)
    return [name for name, value in listed.items() if value is True]


def _without(arm: Arm, names: Collection[str], **changes: Any) -> Arm:
    """The arm without settings, or with features of its mode switched off; the baseline, if
    nothing remains; the arm itself, if it cannot be without them."""
    options = {name: value for name, value in arm.options.items() if name not in names}
    if "mode" not in names:
        options |= {
            name: False for name in _features(arm) if name in names and name not in arm.options
        }
    usual = {name: getattr(BASELINE, name) for name in names if name in ARM_SETTINGS}
    if SYMBOLIC in names:
        usual["dynamic"] = False
    try:
        return replace(arm, **{"options": options, **usual, **changes})
    except InvalidSpec:
        return arm if arm.backend else BASELINE


def _blamed(needed: Sequence[str], smallest: Arm) -> str:
    """What stands for the settings that a fault needs; all that remain, if none alone matters."""
    if any("cudagraphs" in name for name in needed):
        return "CUDA graphs"
    if any(name in AUTOTUNING for name in needed):
        return "autotuning"
    # Paths of backends have colons as well.
    texts = replace(smallest, backend="inductor").text.partition(":")[2].split("+")
    kept = [text for text in texts if not needed or text.partition("=")[0] in needed]
    kept += ["last_batch=dynamic"] if SYMBOLIC in needed else []
    return " and ".join(kept) + (", with and without a compiler" if not smallest.backend else "")
