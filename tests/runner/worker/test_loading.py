"""While a worker loads torch, the garbage collector does not look through what stays."""

import gc
import os
import subprocess
import sys

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.worker.before_torch import loading

LOADED = """
import breakeven.runner.worker.session, gc, sys
assert "torchmetrics" not in sys.modules, "a run in another Python may lack it"
import breakeven.runner.worker.model.task_metrics
assert "torchmetrics" in sys.modules and "scipy.signal" not in sys.modules
import scipy.signal, torchmetrics.functional.text.bert as bert
assert len(scipy.signal.hilbert([1.0, 2.0])) == 2
assert bert.AutoModel is not None, "a callback may use metrics of transformers"
from tests.runner.worker.test_loading import print_hashes
print_hashes()
from breakeven.runner.worker.process_end import leave_in_time
leave_in_time(0)
assert gc.get_freeze_count() > 1000 > len(gc.get_objects())
"""


def print_hashes() -> None:
    """Of the tokens that tasks make of texts."""
    from tests.helpers.workloads import load

    for task in ("text_classification", "masked_lm"):
        data = load(task, num_train_samples=300, sequence_length=32).data
        sys.stdout.write(f"{data.sha256}\n")


def test_the_collector_rests_while_things_are_loaded_and_works_again_whatever_comes() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), loading():
        raise ImportError("no torch")
    assert gc.isenabled()


@pytest.mark.slow
@pytest.mark.heavy
def test_a_worker_loads_metrics_with_its_task_sees_the_tokens_of_others_and_does_not_collect_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The trainer of vocabularies iterates over hash tables that differ between processes."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=PROJECT_ROOT,
        capture_output=True,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        text=True,
    )
    assert done.returncode == 0, done.stderr
    print_hashes()
    hashes = capsys.readouterr().out.split()
    assert done.stdout.split() == hashes and len(set(hashes)) == 2
