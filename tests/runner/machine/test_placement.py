"""Which experiments begin on what: nothing is held twice, and nobody is delayed from behind."""

import heapq
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from breakeven.runner.machine.placement import (
    Machine,
    Place,
    ResourceRequest,
    has_room,
    is_full,
    plan,
    plan_nodes,
)

LAPTOP = Machine(cpus=frozenset(range(4)))
TWO_GPUS = Machine(
    cpus=frozenset(range(8)),
    cpus_by_device={"cuda:0": frozenset(range(4)), "cuda:1": frozenset(range(4, 8))},
)


def request(
    key: str, *devices: str, cpus: set[int] | None = None, exclusive: bool = False
) -> ResourceRequest:
    named = None if cpus is None else frozenset(cpus)
    return ResourceRequest(key=key, devices=devices or ("cpu",), cpus=named, exclusive=exclusive)


def places(begins: Mapping[str, Place]) -> dict[str, str]:
    return {key: ",".join(place.devices) for key, place in begins.items()}


def test_on_the_cpu_one_follows_the_other_unless_they_name_cpus_apart() -> None:
    starts = plan([request("a"), request("b")], {}, LAPTOP)
    assert (places(starts.begins), starts.waits) == ({"a": "cpu"}, {"b": ("a",)})
    assert is_full(starts.begins, LAPTOP)
    apart = plan([request("a", cpus={0, 1}), request("b", cpus={2})], {}, LAPTOP)
    assert list(apart.begins) == ["a", "b"] and not is_full(apart.begins, LAPTOP)
    overlap = plan([request("a", cpus={0, 1}), request("b", cpus={1, 2})], {}, LAPTOP)
    assert overlap.waits == {"b": ("a",)}


def test_experiments_on_two_devices_begin_together_each_with_its_own_cpus() -> None:
    begins = plan([request("a", "cuda:1"), request("b", "cuda:0")], {}, TWO_GPUS).begins
    assert {key: place.cpus for key, place in begins.items()} == {
        "a": frozenset(range(4, 8)),
        "b": frozenset(range(4)),
    }


def test_any_device_is_the_first_that_is_free() -> None:
    starts = plan([request("a", "cuda"), request("b", "cuda"), request("c", "cuda")], {}, TWO_GPUS)
    assert places(starts.begins) == {"a": "cuda:0", "b": "cuda:1"}
    assert starts.waits == {"c": ("a", "b")}
    both = plan(
        [request("a", "cuda:0"), request("b", "cuda", "cuda"), request("c", "cuda")], {}, TWO_GPUS
    )
    assert places(both.begins) == {"a": "cuda:0"}
    assert both.waits["c"] == ("a", "b"), "cuda:1 is kept free for what was there before"
    assert places(plan([request("b", "cuda:1", "cuda")], {}, TWO_GPUS).begins) == {
        "b": "cuda:1,cuda:0"
    }


def test_a_later_one_fills_a_gap_that_no_earlier_one_could_use() -> None:
    queue = [request("a", "cuda:0"), request("b", "cuda:0"), request("c", "cuda:1")]
    starts = plan(queue, {}, TWO_GPUS)
    assert (list(starts.begins), starts.waits) == (["a", "c"], {"b": ("a",)})


def test_what_must_be_alone_waits_until_nothing_runs_and_keeps_the_machine_free() -> None:
    queue = [request("a", "cuda:0"), request("b", "cuda:1", exclusive=True), request("c", "cuda:1")]
    starts = plan(queue, {}, TWO_GPUS)
    assert (list(starts.begins), starts.waits) == (["a"], {"b": ("a",), "c": ("b",)})
    alone = plan(queue[1:], {}, TWO_GPUS)
    assert (list(alone.begins), alone.waits) == (["b"], {"c": ("b",)})


def test_a_device_that_nobody_knows_has_the_machine_to_itself() -> None:
    starts = plan([request("a", "cuda:7"), request("b", "cuda:0")], {}, TWO_GPUS)
    assert (places(starts.begins), starts.waits) == ({"a": "cuda:7"}, {"b": ("a",)})
    assert places(plan([request("a", "cuda")], {}, LAPTOP).begins) == {"a": "cuda:0"}


def test_on_several_machines_each_goes_where_least_is_and_what_waits_keeps_all_of_them() -> None:
    no_gpu = Machine(cpus=frozenset(range(4)), is_known=True)
    machines = {"one": TWO_GPUS, "two": TWO_GPUS, "three": no_gpu}
    assert not has_room(request("a", "cuda"), no_gpu) and has_room(request("e"), no_gpu)
    queue = [
        request("a", "cuda"),
        request("b", "cuda"),
        request("c", "cuda", "cuda"),
        request("d", "cuda"),
        request("e"),
    ]
    chosen = plan_nodes(queue[:2], {}, machines)
    assert {key: allocation.node for key, allocation in chosen.items()} == {"a": "one", "b": "two"}
    both = plan_nodes(queue, {}, machines)
    assert {key: allocation.node for key, allocation in both.items()} == {
        "a": "one",
        "b": "two",
        "e": "three",
    }, "an experiment without a GPU fills the gap"
    del machines["three"]
    assert list(plan_nodes(queue[:3], {}, machines)) == ["a", "b"]
    after = plan_nodes(queue[2:], {"a": chosen["a"]}, machines)
    assert {key: allocation.node for key, allocation in after.items()} == {"c": "two", "d": "one"}


MACHINE = Machine(
    cpus=frozenset(range(8)),
    cpus_by_device={f"cuda:{gpu}": frozenset({2 * gpu, 2 * gpu + 1}) for gpu in range(3)},
)
DEVICES = st.sampled_from(
    [
        ("cpu",),
        ("cuda",),
        ("cuda:0",),
        ("cuda:1",),
        ("cuda:2",),
        ("cuda", "cuda"),
        ("cuda:1", "cuda"),
        ("cuda:0", "cuda:2"),
        ("cuda", "cuda", "cuda"),
    ]
)
CPUS = st.none() | st.frozensets(st.integers(0, 7), min_size=1, max_size=3)
JOBS = st.lists(
    st.tuples(DEVICES, CPUS, st.integers(0, 9).map(lambda number: number == 0), st.integers(1, 9)),
    max_size=9,
)
"""Devices, CPUs, whether alone (one in ten), and how long it takes."""


def worked_off(jobs: Sequence[tuple[ResourceRequest, int]]) -> dict[str, int]:
    """When each of them begins, if all wait from the start."""
    lengths = {request.key: length for request, length in jobs}
    waiting, held, began = [request for request, _ in jobs], dict[str, Place](), dict[str, int]()
    ends: list[tuple[int, str]] = []
    now = 0
    while waiting:
        for key, place in plan(waiting, held, MACHINE).begins.items():
            assert nothing_is_shared([*held.values(), place])
            held[key], began[key] = place, now
            heapq.heappush(ends, (now + lengths[key], key))
        waiting = [
            request for request in waiting if request.key not in held and request.key not in began
        ]
        if waiting:
            assert ends, f"{waiting} would wait for ever"
            now = ends[0][0]
            while ends and ends[0][0] == now:
                del held[heapq.heappop(ends)[1]]
    return began


def nothing_is_shared(held: Sequence[Place]) -> bool:
    devices = [name for place in held for name in place.devices if name != "cpu"]
    cpus = [number for place in held for number in place.cpus]
    alone = len(held) == 1 or not any(place.exclusive for place in held)
    return len(set(devices)) == len(devices) and len(set(cpus)) == len(cpus) and alone


@given(JOBS)
def test_all_begin_none_share_none_is_delayed_by_a_later_one_and_what_waits_names_what_for(
    wishes: list[tuple[tuple[str, ...], frozenset[int] | None, bool, int]],
) -> None:
    jobs = [
        (ResourceRequest(key=str(place), devices=devices, cpus=cpus, exclusive=alone), length)
        for place, (devices, cpus, alone, length) in enumerate(wishes)
    ]
    starts = plan([request for request, _ in jobs], {}, MACHINE)
    assert starts.begins.keys() | starts.waits.keys() == {request.key for request, _ in jobs}
    assert not starts.begins.keys() & starts.waits.keys() and all(starts.waits.values())
    began = worked_off(jobs)
    assert len(began) == len(jobs)
    for size in range(len(jobs)):
        earlier = worked_off(jobs[:size])
        assert earlier == {key: began[key] for key in earlier}
