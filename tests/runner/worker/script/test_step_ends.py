"""Which steps of optimizers end a step of the training."""

import pytest

from breakeven.runner.worker.script.step_ends import AWAITED, LONGEST, StepEnds

SIZES = {0: 10, 1: 5}
"""Parameters of the generator, 0, and the discriminator, 1."""


def ended(order: list[int], num_optimizers: int = 2) -> tuple[list[int], StepEnds]:
    """The sizes of all steps that were found by the end of a script, and what found them."""
    ends, seen, sizes = StepEnds(), set[int](), list[int]()
    for optimizer in order:
        seen.add(optimizer)
        sizes += ends.stepped(optimizer, lambda: SIZES, awaits_others=len(seen) < num_optimizers)
    return sizes + ends.remaining(lambda: SIZES), ends


def test_each_step_of_the_only_optimizer_ends_a_step_at_once() -> None:
    ends = StepEnds()
    assert [ends.stepped(0, dict, awaits_others=False) for _ in range(3)] == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("cycle", "times"),
    [([0, 1], 20), ([1, 1, 1, 1, 1, 0], 7), ([0, 1, 1, 1, 1, 1], 7), ([1, 0, 1], 5)],
)
def test_a_cycle_of_optimizers_is_one_step_from_the_first_on(cycle: list[int], times: int) -> None:
    sizes, ends = ended(cycle * times)
    assert sizes == [len(cycle)] * times and ends.cycle == tuple(cycle)


def test_the_first_repetitions_are_counted_afterwards() -> None:
    ends = StepEnds()
    returned = [
        ends.stepped(number, lambda: SIZES, awaits_others=place == 0)
        for place, number in enumerate([0, 1] * 4)
    ]
    assert returned == [[], [], [], [], [], [2, 2, 2], [], [2]]


def test_an_optimizer_that_never_steps_is_not_waited_for_for_ever() -> None:
    ends = StepEnds()
    returned = [ends.stepped(0, lambda: SIZES, awaits_others=True) for _ in range(AWAITED + 1)]
    assert [sum(sizes) for sizes in returned] == [0] * (AWAITED - 1) + [AWAITED, 1]


def test_a_warm_up_of_one_optimizer_counts_and_then_the_cycle_of_both() -> None:
    sizes, ends = ended([1] * 30 + [0, 1] * 10)
    assert sum(sizes) == 50 and len(sizes) == 30 + 10
    assert set(ends.cycle) == {0, 1} and len(ends.cycle) == 2


def test_another_optimizer_takes_over_in_a_second_stage() -> None:
    sizes, _ = ended([0] * 10 + [1] * 10, num_optimizers=1)
    assert sizes == [1] * 20


def test_without_a_cycle_the_optimizer_of_the_most_parameters_counts() -> None:
    order = [1] * 2 + [number for gap in range(1, 12) for number in [*[1] * gap, 0]]
    assert len(order) > LONGEST
    sizes, ends = ended(order)
    assert ends.counting == 0 and len(sizes) == 11 and sum(sizes) == len(order)


def test_a_script_of_two_repetitions_has_the_steps_of_its_largest_optimizer() -> None:
    assert ended([1, 0, 1, 0])[0] == [2, 2]
