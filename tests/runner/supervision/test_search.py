"""A search under a supervisor: candidates join, lose, fail, and the best are confirmed."""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple

import pytest

from breakeven.runner.experiments.queue import Experiment, experiments, find_experiment, submit
from breakeven.runner.experiments.unconfirmed_searches import why_unconfirmed
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.protocol.turns import TurnPost
from breakeven.runner.specs import experiment as specs
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.supervision.search import Search, confirming_steps
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import own_steps, plan
from breakeven.storage.index.store import Store
from breakeven.storage.terminal.report import report
from tests.runner.supervision import test_supervisor as fake
from tests.runner.supervision.supervised import hurry
from tests.runner.supervision.supervised import impatience as impatience

pytestmark = pytest.mark.heavy
SCRIPT = {
    "task": "script",
    "model": specs.ModelSpec(source="script:/home/me/train.py"),
    "data": specs.DataSpec(source="script"),
}


def search(*backends: str, steps: int = 10_000, seconds: float = 60.0) -> specs.ExperimentSpec:
    return fake.experiment(
        *backends,
        steps=40,
        scenario="tune",
        block_steps=2,
        controls=1,
        more_controls=0,
        speed=specs.SpeedSpec(batches=2, warm_up_blocks=1),
        tune=specs.TuneSpec(steps=steps, max_seconds=seconds),
    )


def ran(
    data_dir: DataDir, spec: specs.ExperimentSpec
) -> tuple[dict[str, RunDir], Experiment | None]:
    """The search's runs by label, and the training that confirms it, of the fewest steps."""
    experiment_id = submit(data_dir, spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("breakeven.runner.supervision.search.CONFIRMING_SHARE", 1e-9)
        supervise(data_dir, fake.FAKE_WORKER)
    confirmations = [
        experiment
        for experiment in experiments(data_dir)
        if experiment.spec.confirms == experiment_id
    ]
    assert len(confirmations) <= 1
    return fake.run_dirs(data_dir, experiment_id), next(iter(confirmations), None)


def id_of(runs: dict[str, RunDir]) -> str:
    return runs["baseline"].run_id.partition(".")[0]


def test_what_gains_is_combined_confirmed_by_a_whole_training_and_reported(
    data_dir: DataDir,
) -> None:
    spec = search("none:optimizer=fused", "swift", "swift:optimizer=fused", "eager", steps=12_345)
    runs, confirmation = ran(data_dir, replace(spec, compile="together"))
    assert set(runs) == {"baseline", "control", "none-fused", "swift", "swift-fused", "eager"}
    assert {run.state for run in runs.values()} == {RunState.FINISHED}
    assert confirmation is not None and confirmation.spec.scenario == "train"
    assert confirmation.spec.backends[0] == "swift:optimizer=fused"
    assert confirmation.spec.compile == "alone", "compile latencies are confirmed, too"
    assert {run.state for run in confirmation.runs} == {RunState.FINISHED}
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, id_of(runs))
        confirmed = compare(store, confirmation.experiment_id)
        assert own_steps(comparison) == own_steps(confirmed) == 12_345
        assert plan(confirmed, own_steps(confirmed)).num_steps == 12_345
    text = report(comparison)
    assert "search for the fastest 12,345 steps" in text
    assert "for 12,345 steps it surely takes longer than swift" in text
    assert "no candidate is left" in text
    # Another supervisor goes on from what the journals say.
    experiment = find_experiment(data_dir, id_of(runs))
    again = Search(spec, dict(zip(experiment.runs, experiment.arms, strict=True)), 1)
    decision = again.decide(["baseline"])
    assert decision.joining == ()
    assert decision.over is not None and decision.over.cause == "searched"


def test_a_larger_batch_is_confirmed_for_as_many_samples(data_dir: DataDir) -> None:
    """Every step of a fake run takes 1 ms, so that batches of two samples take half as long."""
    runs, confirmation = ran(data_dir, search("none:batch_times=2", "eager", steps=5_000))
    assert runs["none-batch_times_2"].state is RunState.FINISHED
    assert confirmation is not None and confirmation.spec.backends == ("none:batch_times=2",)
    confirming = fake.run_dirs(data_dir, confirmation.experiment_id)
    done = {label: len(fake.events(run, "step")) for label, run in confirming.items()}
    # The larger batch makes as many steps as the experiment's own training of 40.
    assert done == {"baseline": 80, "control": 80, "none-batch_times_2": 40}
    with Store.in_memory(data_dir) as store:
        for experiment_id in (id_of(runs), confirmation.experiment_id):
            comparison = compare(store, experiment_id)
            larger = comparison.result_of("none-batch_times_2")
            assert larger.speedup is not None and larger.speedup.median == pytest.approx(2)
            planned = plan(comparison, own_steps(comparison))
            assert {label: planned.totals[label] for label in done} == pytest.approx(
                {"baseline": 5, "control": 5, "none-batch_times_2": 2.5}
            )
            kinds = {warning.kind for warning in comparison.warnings}
            assert not kinds & {"different setting", "different lengths"}


@pytest.mark.slow
@pytest.mark.parametrize(("cpus", "overlap"), [(2, True), (1, False)])
def test_two_candidates_compile_together_on_two_cpus(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, cpus: int, overlap: bool
) -> None:
    """The budget ends the search with the best so far."""
    fake.allow_cpus(monkeypatch, *range(cpus))
    runs, _ = ran(data_dir, replace(search("slow", "slower", seconds=3.0), compile="together"))
    first = [fake.events(runs[label], "block")[0] for label in ("slow", "slower")]
    (first_span, second_span) = ((block["began"], block["time"]) for block in first)
    assert (first_span[0] < second_span[1] and second_span[0] < first_span[1]) == overlap
    assert runs["baseline"].state is RunState.FINISHED
    assert "the budget of 3 s is spent" in runs["baseline"].events_file.read_text()


class RealSearch(NamedTuple):
    """A search with the real worker, which takes ten times as long as one with fake runs."""

    runs: dict[str, RunDir]
    are_claimed: list[bool]
    """Whether a run was claimed when its process learned of its folder."""


@pytest.fixture(scope="module")
def real_search(tmp_path_factory: pytest.TempPathFactory) -> RealSearch:
    """Steps count as slow, so that blocks have three of five steps. The search ends after four
    rounds of its only candidate, long before the budget."""
    data_dir = DataDir(tmp_path_factory.mktemp("real"))
    are_claimed = list[bool]()
    assign = TurnPost.assign

    def watched(post: TurnPost, folder: Path) -> None:
        are_claimed.append(RunDir(folder).claim_file.exists())
        assign(post, folder)

    data = specs.DataSpec(num_train_samples=40, sequence_length=8)
    spec = replace(search("none:optimizer=foreach", seconds=600.0), block_steps=5, data=data)
    with pytest.MonkeyPatch.context() as patch:
        experiment_id = submit(data_dir, replace(spec, compile="together"))
        hurry(patch)
        patch.setattr(TurnPost, "assign", watched)
        patch.setattr("breakeven.runner.supervision.ranking.BLOCK_SECONDS", 1e-9)
        patch.setattr("breakeven.runner.supervision.race.MAX_ROUNDS", 4)
        supervise(data_dir)
    return RealSearch(fake.run_dirs(data_dir, experiment_id), are_claimed)


@pytest.mark.slow
def test_later_candidates_are_forked_from_the_same_process_and_compute_the_same(
    real_search: RealSearch,
) -> None:
    """A process is forked before the run has a folder, which it then checks: nothing may change
    there meanwhile."""
    runs = real_search.runs
    claims = [run.read_claim() for run in runs.values()]
    assert all(claim is not None and claim.is_forked for claim in claims)
    assert real_search.are_claimed == [True] * len(runs)
    losses = {
        label: [step["loss"] for step in fake.events(run, "step")][:8]
        for label, run in runs.items()
    }
    assert len(losses["baseline"]) == 8 and losses["none-foreach"] == losses["baseline"]
    for label, run in runs.items():
        (environment,) = fake.events(run, "environment")
        assert environment["variables"]["TORCHINDUCTOR_CACHE_DIR"].startswith(str(run.path)), label
        assert run.output_file.exists()


@pytest.mark.slow
def test_runs_of_a_search_shorten_their_blocks_all_to_the_same_length(
    real_search: RealSearch,
) -> None:
    sizes: dict[int, set[int]] = {}
    for run in real_search.runs.values():
        blocks = fake.events(run, "block")
        assert (blocks[0]["num_steps"], blocks[-1]["num_steps"]) == (5, 3)
        for block in blocks:
            if not block["warm_up"]:
                sizes.setdefault(block["round"], set()).add(block["num_steps"])
    assert all(len(lengths) == 1 for lengths in sizes.values())


def test_a_candidate_that_dies_or_lacks_memory_ends_alone(data_dir: DataDir) -> None:
    runs, confirmation = ran(data_dir, search("crash", "greedy", "swift"))
    states = fake.states_of(runs)
    assert states["crash"] is RunState.FAILED
    assert states["greedy"] is RunState.OUT_OF_MEMORY
    assert states["baseline"] is states["swift"] is RunState.FINISHED
    assert confirmation is not None and confirmation.spec.backends == ("swift",)


def test_wrong_losses_end_a_candidate(data_dir: DataDir) -> None:
    runs, confirmation = ran(data_dir, search("farther"))
    wrong = runs["farther"].events_file.read_text()
    assert "its losses leave the band of equal trainings" in wrong and confirmation is None


@pytest.mark.slow
def test_a_candidate_that_compiles_longer_than_the_training_takes_is_stopped(
    data_dir: DataDir,
) -> None:
    # 500 steps of 1 ms each: what compiles for half a second has lost.
    runs, _ = ran(data_dir, search("hang", "swift", steps=500))
    ended = runs["hang"].status
    assert ended.state is RunState.CANCELLED
    why = "compiling took longer than the whole training of 500 steps"
    assert str(ended.reason).startswith(why)
    assert runs["swift"].state is RunState.FINISHED


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (RunState.FINISHED, "No candidate gained enough"),
        (RunState.CANCELLED, "The search was stopped. No training has confirmed"),
        (RunState.OUT_OF_MEMORY, "The baseline ended early (out of memory)"),
    ],
)
def test_a_search_without_a_confirmation_says_why(state: RunState, why: str) -> None:
    assert why in why_unconfirmed(state)


def test_a_search_needs_a_control_and_turns() -> None:
    for field, value in (("controls", 0), ("schedule", "sequential")):
        with pytest.raises(Exception, match=field):
            replace(search("swift"), **{field: value})


def test_the_best_of_a_script_is_confirmed_within_the_scripts_own_length(data_dir: DataDir) -> None:
    script = specs.ScriptSpec(steps=60, arguments=("--lr", "1"))
    spec = replace(search("swift"), **SCRIPT, script=script)
    runs, confirmation = ran(data_dir, spec)
    assert runs["swift"].state is RunState.FINISHED
    assert confirmation is not None and confirmation.spec.backends == ("swift",)
    # Any other confirmation has at least 100 steps.
    assert confirmation.spec.script == script and confirmation.spec.training == spec.training
    # It trains as long as the script does, and then starts again until its speed is decided.
    plan_of_it = confirmation.spec.plan
    assert (plan_of_it.steps, plan_of_it.parity) == (10_000, "full")


def test_a_confirmation_has_enough_blocks_for_an_interval_however_small_the_budget() -> None:
    spec = replace(search(seconds=60.0), **SCRIPT, block_steps=20)
    finalists = [parse_backend("eager")]
    # Half of the budget for three runs: 10 s each.
    assert confirming_steps(spec, finalists, step_seconds=0.01, rounds=inf) == 1_000
    # More steps than a clear lead needs show faults that begin late.
    assert confirming_steps(spec, finalists, step_seconds=0.01, rounds=5) == 1_000
    assert confirming_steps(spec, finalists, step_seconds=0.1, rounds=inf) == 16 * 20
    assert (
        confirming_steps(replace(spec, block_steps=5), finalists, step_seconds=0.5, rounds=inf)
        == 100
    )
    ends = replace(spec, script=specs.ScriptSpec(steps=300))
    assert confirming_steps(ends, finalists, step_seconds=0.01, rounds=inf) == 300


@pytest.mark.parametrize(
    ("planned", "rounds", "steps"),
    [(20, inf, 40), (300, inf, 300), (10_000, inf, 1_000), (10_000, 150, 300), (10_000, 5, 40)],
)
def test_for_a_small_lead_a_confirmation_is_longer_than_the_training_but_not_than_planned(
    planned: int, rounds: float, steps: int
) -> None:
    """The training has 40 steps, in blocks of two. The budget would allow 1,000 steps."""
    finalists = [parse_backend("eager")]
    spec = search(steps=planned, seconds=60.0)
    assert confirming_steps(spec, finalists, step_seconds=0.01, rounds=rounds) == steps
