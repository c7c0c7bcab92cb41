"""While a worker loads torch, the garbage collector does not look through what stays."""

import gc
import subprocess
import sys

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.worker.process import loading


def test_the_collector_rests_while_things_are_loaded_and_works_again_whatever_comes() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), loading():
        raise ImportError("no torch")
    assert gc.isenabled()


LEFT = """
import gc
from breakeven.runner.worker.process import leave_in_time
leave_in_time(0)
assert gc.get_freeze_count() > 1000 > len(gc.get_objects())
"""


def test_a_run_that_ends_is_not_looked_through_for_garbage_once_more() -> None:
    subprocess.run([sys.executable, "-c", LEFT], cwd=PROJECT_ROOT, check=True)


LOADED = """
import breakeven.runner.worker.session, sys
assert "torchmetrics" in sys.modules and "scipy.signal" not in sys.modules
import scipy.signal
assert len(scipy.signal.hilbert([1.0, 2.0])) == 2
"""


@pytest.mark.heavy
def test_a_worker_loads_no_filters_of_sound_and_who_asks_for_them_gets_them() -> None:
    subprocess.run([sys.executable, "-c", LOADED], cwd=PROJECT_ROOT, check=True)
