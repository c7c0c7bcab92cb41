"""How long a connection may say nothing, or half a request: as long as a slow network needs.

uvicorn closes one that rests after an answer, and waits for ever for the first request and for the
second half of one: whoever reaches the port could hold as many as this process may have open.
"""

from typing import Any

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_SECONDS = 20.0
"""Until a request's headers must be there, from its connection or the last answer on."""


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's, which gives up at last."""

    _since: float
    """When the connection was made or the last answer ended, by the loop's clock."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look_again()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def _look_again(self) -> None:
        self.loop.call_later(HEAD_SECONDS / 4, self._look)

    def _look(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # It is over, or a page's websocket, which is asked for signs of life.
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not is_answering and self.loop.time() - self._since > HEAD_SECONDS:
            self.transport.close()
        else:
            self._look_again()


def give_up_at_last() -> None:
    """Has every server of this process do so that is not told which protocol it is to speak."""
    HTTP_PROTOCOLS["auto"] = f"{__name__}:{PatientProtocol.__name__}"
