"""Files that take long are made for one person at a time as long as for all others."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import streamlit as st

from breakeven import serve
from breakeven.views.access.asking import HERE, Places, TooMany, asker_of
from breakeven.views.access.session import Person
from breakeven.views.access.signin import PERSON
from breakeven.views.access.team import Role
from breakeven.views.parts.downloads import download
from tests.helpers.waiting import PATIENCE_SECONDS, awaited


def test_who_asks_for_many_is_refused_and_others_are_not() -> None:
    places = Places(each=2)
    with places.one_of("vic"), places.one_of("vic"):
        with pytest.raises(TooMany, match="2 of the files"), places.one_of("vic"):
            pass
        with places.one_of("ada"):
            pass
    with places.one_of("vic"):
        pass


def test_a_place_is_free_again_after_an_error_and_nobody_is_remembered() -> None:
    places = Places(each=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), places.one_of("vic"):
            _ = 1 / 0
    assert not places._taken


def test_places_hold_between_threads() -> None:
    places, taken, done = Places(each=1), threading.Event(), threading.Event()

    def work() -> None:
        with places.one_of("vic"):
            taken.set()
            done.wait(PATIENCE_SECONDS)

    thread = threading.Thread(target=work)
    thread.start()
    assert taken.wait(PATIENCE_SECONDS)
    with pytest.raises(TooMany), places.one_of("vic"):
        pass
    done.set()
    thread.join()
    with places.one_of("vic"):
        pass


def test_wishes_count_together_by_person_or_by_address() -> None:
    vic = Person(subject="vic", name="v", role=Role.VIEWER, ends=1.0, session_id="1")
    again = Person(subject="vic", name="v", role=Role.VIEWER, ends=9.0, session_id="2")
    assert {asker_of({PERSON: one, "client": ("10.0.0.1", 1)}) for one in (vic, again)} == {"vic"}
    assert asker_of({"client": ("10.0.0.1", 1)}) == asker_of({"client": ("10.0.0.1", 2)})
    assert asker_of({"client": ("127.0.0.1", 1)}) == asker_of({}) == HERE


def test_a_file_of_a_page_takes_one_of_its_readers_places(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[Callable[[], bytes]] = []

    def offer(label: str, data: Any, *others: Any, **more: Any) -> None:
        offered.append(data)

    monkeypatch.setattr(st, "download_button", offer)
    places = Places(each=1)
    download("CSV", lambda: b"a,b", "a.csv", "text/csv", places=places)
    (make,) = offered
    assert make() == b"a,b"
    with places.one_of(HERE), pytest.raises(TooMany):
        make()


def test_files_that_wait_keep_no_other_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Python's own threads there are 32 at most."""
    monkeypatch.setattr(serve, "prepare_all", lambda: None)
    gate = threading.Event()

    async def one_more() -> bytes:
        async with serve.preparing(None):  # type: ignore[arg-type]
            waiting = [
                asyncio.create_task(asyncio.to_thread(gate.wait, PATIENCE_SECONDS))
                for _ in range(40)
            ]
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS / 2):
                    return await asyncio.to_thread(bytes)
            finally:
                gate.set()
                await asyncio.gather(*waiting)

    assert awaited(one_more()) == b""
