"""While a worker loads torch, the garbage collector does not look through what stays."""

import gc
import subprocess
import sys

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.worker.process import loading

LOADED = """
import breakeven.runner.worker.session, gc, sys
assert "torchmetrics" not in sys.modules, "a run in another Python may lack it"
import breakeven.runner.worker.model.metrics
assert "torchmetrics" in sys.modules and "scipy.signal" not in sys.modules
import scipy.signal, torchmetrics.functional.text.bert as bert
assert len(scipy.signal.hilbert([1.0, 2.0])) == 2
assert bert.AutoModel is not None, "a callback may use metrics of transformers"
from breakeven.runner.worker.process import leave_in_time
leave_in_time(0)
assert gc.get_freeze_count() > 1000 > len(gc.get_objects())
"""


def test_the_collector_rests_while_things_are_loaded_and_works_again_whatever_comes() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), loading():
        raise ImportError("no torch")
    assert gc.isenabled()


@pytest.mark.heavy
def test_a_worker_loads_metrics_with_its_task_and_ends_without_a_last_collection() -> None:
    subprocess.run([sys.executable, "-c", LOADED], cwd=PROJECT_ROOT, check=True)
