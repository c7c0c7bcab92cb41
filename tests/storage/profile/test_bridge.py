"""From the baseline's step to a run's, and the speedup of the device's own time; by hand."""

import math

import pandas as pd
import pytest

from breakeven.storage.profile.explanation import bridge, own_speedup
from breakeven.storage.profile.recorded_profiles import Profile
from tests.helpers.profiles.recorded import make_profile

NAMES = {
    "gemm": "nvjet_sm90_tst_1",
    "add": "void vectorized_elementwise_kernel<4>",
    "triton": "triton_poi_fused_1",
    "adam": "void multi_tensor_apply_kernel<Adam>",
}


def profile(label: str, step_seconds: float, **seconds: float) -> Profile:
    frame = pd.DataFrame(
        {"name": [NAMES[kernel] for kernel in seconds], "seconds": seconds.values()}
    )
    return make_profile(frame, step_seconds, label)


def with_turns(profiled: Profile, *busy: float) -> Profile:
    rows = pd.concat([profiled.turns] * len(busy)).assign(busy_seconds=busy)
    object.__setattr__(profiled, "turns", rows)
    return profiled


def test_the_parts_add_up_to_the_difference_of_the_step_times() -> None:
    """10 ms: 4 + 3, 3 idle. 7 ms: 5 + 1.5, 0.5 idle. Products +1, elementwise -3, fused +1.5, idle
    -2.5: together -3."""
    bridged = bridge(
        profile("baseline", 0.010, gemm=0.004, add=0.003),
        profile("inductor", 0.007, gemm=0.005, triton=0.0015),
    )
    differences = bridged.parts.set_index("work_class")["difference"]
    assert differences.to_dict() == pytest.approx(
        {"matmul_bf16": 0.001, "elementwise": -0.003, "fused": 0.0015, "idle": -0.0025}
    )
    assert bridged.difference == pytest.approx(-0.003)


def test_an_optimizer_that_is_compiled_with_the_rest_is_not_saved() -> None:
    baseline = profile("baseline", 0.010, add=0.002, adam=0.005)
    bridged = bridge(baseline, profile("eager", 0.012, add=0.009))
    differences = bridged.parts.set_index("work_class")["difference"].to_dict()
    assert differences == pytest.approx({"elementwise": 0.002, "idle": 0.0})
    assert bridged.difference == pytest.approx(0.002)


def test_without_a_profile_or_a_timed_step_there_is_no_bridge() -> None:
    known, unknown = profile("baseline", 0.01, gemm=0.004), profile("inductor", 0.01)
    assert bridge(known, unknown) is None
    untimed = profile("inductor", 0.01, gemm=0.004)
    object.__setattr__(untimed, "step_seconds", None)
    assert bridge(known, untimed) is None


def test_the_own_speedup_is_the_mean_ratio_with_students_interval() -> None:
    """Logarithms 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t(2) = 4.3027, so 0.2 +- 0.24841."""
    baseline = with_turns(profile("baseline", 2.0, gemm=1.0), 1.0, 1.0, 1.0)
    run = with_turns(
        profile("inductor", 2.0, gemm=1.0), math.exp(-0.1), math.exp(-0.2), math.exp(-0.3)
    )
    own = own_speedup(baseline, run)
    assert own is not None and own.num_turns == 3
    assert own.ratio == pytest.approx(math.exp(0.2))
    assert own.low == pytest.approx(math.exp(0.2 - 0.24841), rel=1e-4)
    assert own.high == pytest.approx(math.exp(0.2 + 0.24841), rel=1e-4)


def test_one_turn_has_no_interval_and_the_cpu_no_time_of_its_own() -> None:
    baseline, run = profile("baseline", 2.0, gemm=1.0), profile("inductor", 2.0, gemm=0.5)
    own = own_speedup(baseline, run)
    assert own is not None and own.ratio == pytest.approx(2.0) and own.low is None
    object.__setattr__(run, "works_by_itself", False)
    assert own_speedup(baseline, run) is None


def test_the_turn_in_the_middle_stands_for_all() -> None:
    three = with_turns(profile("inductor", 2.0, gemm=1.0), 3.0, 1.0, 2.0)
    assert three.middle["busy_seconds"] == 2.0
