"""A planned training under a supervisor: it starts again or ends early, and the answer says so."""

import pytest

from breakeven.runner.experiments.queue import submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import PlanSpec
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage.comparison.comparison import Comparison, compare
from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.index.store import Store
from breakeven.storage.terminal.report import report
from tests.runner.supervision import test_supervisor as fake
from tests.runner.supervision.supervised import impatience as impatience

pytestmark = pytest.mark.heavy


def ran(data_dir: DataDir, *backends: str, steps: int) -> Comparison:
    """A planned training of this length, whose blocks have two steps of 1 ms."""
    plan = PlanSpec(steps=12_345)
    spec = fake.experiment(
        *backends, steps=steps, block_steps=2, controls=1, more_controls=0, plan=plan
    )
    experiment_id = submit(data_dir, spec)
    supervise(data_dir, fake.FAKE_WORKER)
    runs = fake.run_dirs(data_dir, experiment_id).values()
    assert {run.state for run in runs} == {RunState.FINISHED}
    with Store.in_memory(data_dir) as store:
        return compare(store, experiment_id)


def test_what_is_too_short_to_decide_starts_again_and_counts_the_losses_once(
    data_dir: DataDir,
) -> None:
    comparison = ran(data_dir, "swift", steps=10)
    answer = own_plan(comparison).answer
    assert answer is not None and (answer.kind, answer.backend) == ("use", "swift")
    swift = comparison.result_of("swift")
    # One training has five blocks, of which the first does not count.
    assert swift.speedup is not None and swift.speedup.n >= 10
    assert swift.measured.num_steps == 10
    text = report(comparison)
    assert "for 12,345 steps swift surely takes the least time" in text
    assert not {"different lengths", "stopped"} & {warning.kind for warning in comparison.warnings}


def test_what_surely_loses_ends_before_the_others(data_dir: DataDir) -> None:
    comparison = ran(data_dir, "swift", "eager", steps=100)
    answer = own_plan(comparison).answer
    assert answer is not None and (answer.kind, answer.backend) == ("use", "swift")
    steps = {result.label: result.measured.num_steps for result in comparison.results}
    assert steps["baseline"] == steps["control"] == steps["swift"] == 100
    assert 12 <= steps["eager"] < 100
    assert "eager (for 12,345 steps it surely takes longer than swift)" in report(comparison)


def test_what_is_as_fast_ends_as_equal(data_dir: DataDir) -> None:
    comparison = ran(data_dir, "eager", steps=10)
    answer = own_plan(comparison).answer
    assert answer is not None and answer.kind == "do not compile"
    assert "what is left takes equally long, within 2 %" in report(comparison)
