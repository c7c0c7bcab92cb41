"""What the simulated histories found once, each as a history that is written out.

The supervisor is the real one, in a simulated system: `benchmarks/simulation/`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.simulation.boundary import simulated
from benchmarks.simulation.history import LIMIT_SECONDS, SPECS, History
from benchmarks.simulation.workers import Nature
from breakeven.runner.experiments.queue import find_experiment, resume, submit
from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, TrainingSpec
from tests.runner.supervision.test_supervisor import SCHEDULER, events

ON_CUDA = SPECS[2]
"""A baseline and two backends, which take turns."""
OF_A_KIND = partial(Nature, load_seconds=0.1, step_seconds=0.1)
USUAL, SLOW = OF_A_KIND(), OF_A_KIND(step_seconds=3.0)
LATE = OF_A_KIND(load_seconds=3.0)
DIES = OF_A_KIND(last_breath=("report", 1), leaves_checkpoints=True)
"""It can be resumed."""
FINISHED = {RunState.FINISHED}


class Script(History):
    """A history in which nothing is drawn but the order of what happens at the same moment."""

    def __init__(self, folder: Path, *natures: Nature) -> None:
        super().__init__(folder, "script")
        self.is_calm = True  # no supervisor is killed by chance
        self.coming = iter(natures)

    def person(self, seconds: float, act: Callable[[], object]) -> None:
        process = self.kernel.new_process("command")
        self.kernel.at(seconds, lambda: self.kernel.spawn(process, act) and None)

    def runs(self) -> dict[str, RunDir]:
        return {run.run_id.partition(".")[2]: run for run in self.data_dir.run_dirs()}

    def states(self) -> dict[str, RunState]:
        return {label: run.state for label, run in self.runs().items()}

    def submit(self, is_checked: bool = True, **changes: object) -> None:
        """Somebody does so at the beginning."""

        def act() -> None:
            spec = replace(ON_CUDA, **changes)  # type: ignore[arg-type]
            self.submitted.append(submit(self.data_dir, spec, is_checked=is_checked))
            self._ensure()

        self.person(0.0, act)

    def times(self, what: str) -> dict[str, float]:
        """When each run first said so, by the end of its label."""
        of_process: dict[str, str] = {}
        first_times: dict[str, float] = {}
        for line in self.kernel.said:
            time, words = line.split(maxsplit=1)
            if " begins: " in words:
                process, run = words.removeprefix("run ").partition(" begins: ")[0].split(" of ")
                of_process[process] = run.partition(".")[2]
            process = words.removeprefix("run ").split()[0]
            if what in words and process in of_process:
                first_times.setdefault(of_process[process], float(time))
        return first_times

    def submit_and_resume_after(self, seconds: float) -> None:
        self.submit()
        self.person(seconds, lambda: resume(find_experiment(self.data_dir, self._some())))


@contextmanager
def scripted(tmp_path: Path, *natures: Nature) -> Iterator[Script]:
    """Runs are as `natures` have it, in the order in which they start, and then usual."""
    script = Script(tmp_path / "data", *natures)
    with pytest.MonkeyPatch.context() as patch, simulated(script.system):
        patch.setattr("benchmarks.simulation.kernel.PREEMPTED", 0.0)
        patch.setattr(Nature, "drawn", lambda chance: next(script.coming, USUAL))
        try:
            yield script
        finally:
            script.kernel.close()


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    with scripted(tmp_path) as made:
        yield made


def test_a_round_has_a_turn_of_each_run_in_an_order_by_the_seed_and_in_the_first_by_compiling(
    tmp_path: Path,
) -> None:
    """That one run works at a time is held in every simulated history."""
    backends = ("inductor:mode=max-autotune-no-cudagraphs", "inductor", "own", "eager")
    orders = []
    for number, seed in enumerate((1, 1, 2)):
        with scripted(tmp_path / str(number)) as script:
            script.submit(
                backends=backends,
                controls=1,
                data=DataSpec(num_train_samples=60),
                training=TrainingSpec(batch_size=1, seed=seed),
            )
            script.kernel.run()
            assert set(script.states().values()) == FINISHED
            blocks = [events(run, "block") for run in script.runs().values()]
        assert sorted((event["round"], event["position"]) for run in blocks for event in run) == [
            (round_number, position) for round_number in range(6) for position in range(6)
        ]
        orders.append([tuple(event["position"] for event in run) for run in blocks])
        by_label = dict(zip(script.runs(), (run[0] for run in orders[-1]), strict=True))
        assert {by_label["baseline"], by_label["control"]} == {0, 1}
        assert by_label["eager"] == 2
        assert {by_label["inductor"], by_label["own"]} == {3, 4}, "nobody knows what it compiles"
        assert by_label["inductor-max-autotune-no-cudagraphs"] == 5, "it tries every kernel"
    assert orders[0] == orders[1] != orders[2]
    assert len({run[1:] for run in orders[0]}) == 6 and len(set(orders[0][0])) > 1


def test_what_compiles_nothing_begins_while_others_load_and_what_compiles_waits(
    script: Script,
) -> None:
    script.coming = iter((USUAL, USUAL, USUAL, LATE))
    script.submit(backends=("eager", "late"), controls=1)
    script.kernel.run()
    turns = script.times("takes turn 0")
    assert max(turns["baseline"], turns["control"]) < 3.0 < min(turns["eager"], turns["late"])


def test_none_trains_before_the_baseline_of_an_unchecked_experiment_is_set_up(
    script: Script,
) -> None:
    script.coming = iter([LATE])
    script.submit(is_checked=False, backends=(), controls=1)
    script.kernel.run()
    assert min(script.times("takes turn 0").values()) > 3.0


def test_no_more_runs_load_at_once_than_there_are_cpus_and_one_that_is_stopped_never_starts(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowance = CpuAllowance(num_in_machine=8, cpus=frozenset({3}), quota=None)
    monkeypatch.setattr(f"{SCHEDULER}.cpu_allowance", lambda: allowance)
    script.coming = iter((LATE, LATE, LATE))
    script.submit()
    script.person(1.0, lambda: script.runs()["inductor"].request_cancel())
    script.kernel.run()
    began = script.times(" begins: ")
    assert set(began) == {"baseline", "eager"} and began["eager"] >= began["baseline"] + 3.0
    stopped = script.runs()["inductor"]
    assert stopped.state is RunState.CANCELLED and stopped.read_claim() is None


def test_what_is_resumed_while_its_experiment_is_at_work_runs_once_that_is_over(
    script: Script,
) -> None:
    script.coming = iter((SLOW, DIES))
    script.submit_and_resume_after(8.0)
    script.kernel.run(8.0)
    assert script.states()["eager"] is RunState.FAILED
    assert script.states()["baseline"] is RunState.RUNNING
    script.kernel.run()
    assert set(script.states().values()) == FINISHED


def test_what_passed_while_the_supervisor_was_suspended_is_in_no_time_limit(script: Script) -> None:
    script.submit()
    script.kernel.run(0.05)  # all load
    script._stall()
    (supervisor,) = script._living("supervisor")
    supervisor.stalled_until = 10 * ON_CUDA.time_limit_seconds
    script.kernel.run()
    assert set(script.states().values()) == FINISHED


def test_runs_that_fit_go_on_where_the_others_cannot_be_repeated_for_want_of_room(
    script: Script,
) -> None:
    script.coming = iter((USUAL, OF_A_KIND(last_breath=("report", 77))))
    script.submit()
    script.kernel.run(0.3)  # it has its first turn
    script.system.disk_is_full_until = 1.5
    script.kernel.run()
    states = script.states()
    assert states.pop("eager") is RunState.OUT_OF_MEMORY
    assert set(states.values()) == FINISHED


def test_a_run_that_was_started_and_not_yet_claimed_is_ended_by_the_next_supervisor(
    script: Script,
) -> None:
    script.coming = iter([OF_A_KIND(is_stuck=True)])
    usual, killed = script.kernel.call, []

    def call(what: str) -> None:
        """Kills the supervisor before it first waits for the disk."""
        task = script.kernel.current
        if task is not None and not killed and (what, task.process.kind) == ("fsync", "supervisor"):
            killed.append(task.process)
            task.process.killed_at_call = task.process.calls + 1
        usual(what)

    script.kernel.call = call  # type: ignore[method-assign]
    script.submit()
    script.kernel.run()
    (left,) = script._living("run")
    assert not script.runs()["baseline"].claim_file.exists()
    script.person(0.0, script._ensure)
    script.kernel.run(script.kernel.now + 0.05)
    assert not left.is_alive and len(script._living("run")) == 3
    script.kernel.run()
    assert set(script.states().values()) == FINISHED


def test_a_run_that_closes_its_pipe_is_reported_and_keeps_no_process_busy(script: Script) -> None:
    script.coming = iter((USUAL, OF_A_KIND(closes_pipe=True)))
    script.submit()
    script.kernel.run()
    standing = script.runs()["eager"].status
    assert standing.state is RunState.FAILED
    assert "closes file descriptors" in str(standing.reason)
    assert script.states()["inductor"] is RunState.FINISHED
    assert script.kernel.calls < 2_000


def test_what_ended_on_a_full_disk_is_not_started_again_with_what_was_resumed(
    script: Script,
) -> None:
    script.coming = iter((SLOW, DIES))
    script.submit_and_resume_after(8.0)
    script.kernel.run(8.1)
    script.system.disk_is_full_until = 60.0
    script.kernel.run()
    begun = [line for line in script.kernel.said if " begins: " in line]
    labels = ("baseline", "eager", "inductor")
    # The ends of two were owed, and the third begins once more when there is room.
    assert [sum(f"{label} begins" in line for line in begun) for label in labels] == [1, 2, 1]
    assert float(begun[-1].split()[0]) > 60.0
    assert set(script.states().values()) == FINISHED


WITHOUT_BASELINE = [RunState.FAILED, RunState.CANCELLED, RunState.CANCELLED]
EAGER_FAILED = [RunState.FINISHED, RunState.FAILED, RunState.FINISHED]
EAGER_TOO_LONG = [RunState.FINISHED, RunState.TIMEOUT, RunState.FINISHED]


@pytest.mark.parametrize(
    ("natures", "states"),
    [
        ([{"last_breath": ("load", 1)}], WITHOUT_BASELINE),
        ([{"last_breath": ("work", 1)}], WITHOUT_BASELINE),
        # What was compared with a baseline before it failed stays.
        ([{"last_breath": ("report", 1)}], [RunState.FAILED, RunState.FINISHED, RunState.FINISHED]),
        ([{}, {"last_breath": ("load", 1)}], EAGER_FAILED),
        ([{}, {"last_breath": ("work", 1)}], EAGER_FAILED),
        # Waiting for a turn is no work.
        ([{}, {"step_seconds": 0.4 * LIMIT_SECONDS}], EAGER_TOO_LONG),
        ([{}, {"hangs_in": "work"}], EAGER_TOO_LONG),
    ],
)
def test_a_run_that_fails_or_works_too_long_ends_alone_unless_the_baseline_has_no_step(
    script: Script, natures: list[dict[str, object]], states: list[RunState]
) -> None:
    script.coming = iter([OF_A_KIND(**nature) for nature in natures])
    script.submit()
    script.kernel.run()
    assert script.states() == dict(zip(("baseline", "eager", "inductor"), states, strict=True))
    if states == WITHOUT_BASELINE:
        why = str(script.runs()["inductor"].status.reason)
        assert why.startswith("no baseline to compare with: exit status 1")
    assert (script.kernel.now > LIMIT_SECONDS) == (states == EAGER_TOO_LONG)


def test_runs_of_one_round_are_always_of_one_supervisor(script: Script) -> None:
    def rounds() -> list[list[int]]:
        return [
            [event["round"] for event in events(run, "block")] for run in script.runs().values()
        ]

    script.coming = iter((SLOW, SLOW, SLOW))
    script.submit()
    script.kernel.run(14.0)
    script._kill_supervisor()
    script.kernel.run()
    assert all(rounds()), "each had a turn"
    script.person(0.0, script._ensure)
    script.kernel.run()
    assert set(script.states().values()) == FINISHED
    assert rounds() == [[0, 1, 2]] * 3
    script._judge()
