"""Sentences know their figures; the terminal prints them, pages link them."""

from typing import get_args

from breakeven.storage.comparison.caution import Caution, Kind
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.storage.numbers.sentences import Figure, Sentence, figure, joined, said
from breakeven.storage.terminal.caution_words import SENTENCES, caution_words
from breakeven.storage.terminal.device_words import DEVICE, doubt_words
from breakeven.views.shared.links import sentence

NOISY = Caution(kind="noisy", figures={"noise_floor": 0.0314})


def test_a_figure_is_written_as_its_number_is_everywhere() -> None:
    assert figure("noise_floor", 0.0314) == Figure("noise_floor", "3.1 %")
    assert figure("step_seconds", 0.0123).text == NUMBERS["step_seconds"].format(0.0123)


def test_texts_that_stand_beside_each_other_become_one() -> None:
    """So that nothing foreign is split where it would be read in two halves."""
    speed = Figure("speedup", "1.50x")
    inner = said("{run} is at {speed}", run="a {b}", speed=speed)
    assert inner == Sentence(("a {b} is at ", speed))
    assert said("({inner}), {rest}", inner=inner, rest="c") == Sentence(
        ("(a {b} is at ", speed, "), c")
    )
    assert joined(["a", speed, "", "b"], ", ").parts == ("a, ", speed, ", , b")
    assert str(inner) == "a {b} is at 1.50x"


def test_a_page_links_the_figures_of_a_caution_and_nothing_else() -> None:
    said_of_noise = caution_words(NOISY)
    assert "differ by up to [3.1 %](definitions#noise_floor), and" in sentence(said_of_noise)
    assert "differ by up to 3.1 %, and" in str(said_of_noise)
    foreign = Caution(kind="ended early", runs={
        "[5 s](x)": {"state": "failed", "reason": None, "steps_done": 3, "num_steps": 40},
    })  # fmt: skip
    page = sentence(caution_words(foreign))
    assert page.startswith("&#91;5 s&#93;(x) failed at [step 3 of 40](")
    assert page.count("](") == 1


def test_a_recorded_text_with_numbers_leads_as_a_whole_to_what_notes_are() -> None:
    told = [Caution(kind="note", figures={"text": text}) for text in ("It left 3 out.", "Off.")]
    assert [sentence(caution_words(one)) for one in told] == [
        "[It left 3 out.](definitions#cautions)", "Off.",
    ]  # fmt: skip


def test_a_doubt_beside_one_run_names_neither_the_run_nor_a_remedy() -> None:
    seen = {"num_seen": 2, "num_looked": 12, "was_before": False}
    others = ({"name": None, "pid": 7, "memory_bytes": 2**31},)
    doubt = Caution(kind="shared device", runs={"a": seen}, figures={"processes": others})
    beside = "Other processes were on the device: in 2 of 12 samples; seen: a process "
    assert str(doubt_words(doubt)) == beside + "(pid 7, 2.00 GiB)."
    assert str(caution_words(doubt)).startswith("Other processes were on the device: a in 2 of 12")
    assert str(caution_words(doubt)).endswith("choose another device, and run again.")


def test_there_are_words_for_every_kind_of_caution_once() -> None:
    assert sorted([*SENTENCES, *DEVICE]) == sorted(get_args(Kind))
