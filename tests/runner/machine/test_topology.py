"""Which CPUs belong to which device, from files as the kernel writes them."""

from pathlib import Path

import pytest

from breakeven.runner.machine.cpus import cpus_by_core, cpus_by_device, numa_nodes
from breakeven.runner.specs.place import parse_cpus, write_cpus


def system(folder: Path, siblings: dict[int, str], nodes: dict[int, str]) -> Path:
    for number, text in siblings.items():
        file = folder / f"cpu/cpu{number}/topology/thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(f"{text}\n")
    for number, text in nodes.items():
        file = folder / f"node/node{number}/cpulist"
        file.parent.mkdir(parents=True)
        file.write_text(f"{text}\n")
    return folder


@pytest.mark.parametrize(("text", "numbers"), [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8})])
def test_a_list_of_cpus_is_read_and_written(text: str, numbers: set[int]) -> None:
    assert parse_cpus(text) == numbers
    assert write_cpus(numbers) == text


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "99999", "1-"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_cpus(text)


def test_threads_of_one_core_stay_together_and_devices_get_cores_of_their_node(
    tmp_path: Path,
) -> None:
    siblings = {number: f"{number % 4},{number % 4 + 4}" for number in range(8)}
    folder = system(tmp_path, siblings, {0: "0-1,4-5", 1: "2-3,6-7"})
    groups = cpus_by_core(range(8), folder)
    assert groups == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]
    nodes = numa_nodes(folder)
    assert nodes == {0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}
    assert cpus_by_device({"cuda:0": 1, "cuda:1": 0}, groups, nodes) == {
        "cuda:0": {2, 3, 6, 7},
        "cuda:1": {0, 1, 4, 5},
    }
    both_at_one = cpus_by_device({"cuda:0": 0, "cuda:1": 0}, groups, nodes)
    assert both_at_one == {"cuda:0": {0, 4}, "cuda:1": {1, 5}}
    unknown = cpus_by_device({"cuda:0": None, "cuda:1": 0}, groups, nodes)
    assert unknown == {"cuda:0": {0, 1, 4, 5}, "cuda:1": {2, 3, 6, 7}}


def test_only_cpus_that_may_be_used_are_given_away(tmp_path: Path) -> None:
    folder = system(tmp_path, {0: "0,2", 1: "1,3", 3: "1,3"}, {})
    assert cpus_by_core({0, 1, 3}, folder) == [{0}, {1, 3}]
    assert numa_nodes(folder) == {}


def test_a_device_alone_or_among_too_few_cores_has_all_cpus() -> None:
    every = [frozenset({0}), frozenset({1})]
    assert cpus_by_device({"cuda:0": None}, every, {}) == {"cuda:0": {0, 1}}
    three: dict[str, int | None] = dict.fromkeys(("cuda:0", "cuda:1", "cuda:2"))
    assert cpus_by_device(three, every, {}) == {name: {0, 1} for name in three}
