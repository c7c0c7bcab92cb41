"""A browser without its eyes: says over the websocket what Streamlit's page says, as often.

A page asks for its script, and again for each part of it that draws itself anew (a fragment), as
often as the server said; of messages that the server sent before it is told the hash alone.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

STEPS_DONE = re.compile(rb">([\d,]+) / [\d,]+ steps")
PATIENCE_SECONDS = 120.0


@dataclass(kw_only=True)
class Reader:
    """One connection, which shows one page at a time."""

    connection: ClientConnection
    seen: list[tuple[float, list[int]]] = field(default_factory=list)
    """When the page Live told of how many steps of each run."""
    errors: list[str] = field(default_factory=list)
    """Exceptions that a page showed."""
    num_messages: int = 0
    intervals: list[float] = field(default_factory=list)
    """How often each part of the page was to be asked for again, in the order of the page."""
    _kept: dict[str, ForwardMsg] = field(default_factory=dict)
    _finished: asyncio.Event = field(default_factory=asyncio.Event)
    _fragments: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def visit(self, page: str, query: str = "") -> float:
        """Asks for a page; seconds until all of it was there."""
        self._leave()
        message = BackMsg()
        message.rerun_script.page_name = page
        message.rerun_script.query_string = query
        message.rerun_script.context_info.timezone = "UTC"
        self._finished.clear()
        begun = time.monotonic()
        await self.connection.send(message.SerializeToString())
        await asyncio.wait_for(self._finished.wait(), PATIENCE_SECONDS)
        return time.monotonic() - begun

    async def listen(self) -> None:
        """Until the connection is closed."""
        async for data in self.connection:
            self.num_messages += 1
            message = ForwardMsg()
            message.ParseFromString(data)
            if message.WhichOneof("type") == "ref_hash":
                message = self._kept.get(message.ref_hash, message)
            elif message.metadata.cacheable:
                self._kept[message.hash] = message
            self._hear(message)

    def _hear(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "script_finished" and message.script_finished in (
            ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_WITH_COMPILE_ERROR,
        ):  # fmt: skip
            self._finished.set()
        elif kind == "auto_rerun":
            self.intervals.append(message.auto_rerun.interval)
            self._repeat(message.auto_rerun.fragment_id, message.auto_rerun.interval)
        elif kind == "stop_auto_rerun":
            for fragment_id in message.stop_auto_rerun.fragment_ids:
                self._drop(fragment_id)
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            self._look_at(message.delta.new_element)

    def _look_at(self, element: Any) -> None:
        if element.WhichOneof("type") == "exception":
            self.errors.append(f"{element.exception.type}: {element.exception.message}")
            return
        counts = STEPS_DONE.findall(element.SerializeToString())
        if counts:
            self.seen.append((time.time(), [int(count.replace(b",", b"")) for count in counts]))

    def _repeat(self, fragment_id: str, interval: float) -> None:
        self._drop(fragment_id)
        self._fragments[fragment_id] = asyncio.create_task(self._again(fragment_id, interval))

    async def _again(self, fragment_id: str, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            message = BackMsg()
            message.rerun_script.fragment_id = fragment_id
            message.rerun_script.is_auto_rerun = True
            await self.connection.send(message.SerializeToString())

    def _drop(self, fragment_id: str) -> None:
        if task := self._fragments.pop(fragment_id, None):
            task.cancel()

    def _leave(self) -> None:
        for fragment_id in list(self._fragments):
            self._drop(fragment_id)


@asynccontextmanager
async def reading(address: str) -> AsyncIterator[Reader]:
    """A reader who is connected to the dashboard at that address."""
    where = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
    async with connect(
        where, max_size=None, subprotocols=["streamlit"],  # type: ignore[list-item]
        additional_headers={"Origin": address}, ping_interval=None,
    ) as connection:  # fmt: skip
        reader = Reader(connection=connection)
        listening = asyncio.create_task(reader.listen())
        try:
            yield reader
        finally:
            reader._leave()
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
