"""While a worker loads torch, the garbage collector does not look through what stays."""

import gc

import pytest

from runner.worker.process import loading


def test_the_collector_rests_while_things_are_loaded_and_works_again_whatever_comes() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), loading():
        raise ImportError("no torch")
    assert gc.isenabled()
