"""Reads and writes the archive of run folders that a report carries.

Anybody may have changed a report. Only one element of the HTML is read, by its exact form: the
archive in base64, with its digest. Nothing in the page is shown or executed here.
"""

import base64
import binascii
import hashlib
import re
from pathlib import Path

from breakeven.storage.errors import ImportUnusable

MAX_REPORT_BYTES = 400 * 2**20

FORMAT = "breakeven-report-1"

_BEFORE = '<script type="application/zip" id="breakeven-runs"'

_ELEMENT = re.compile(
    rb'<script type="application/zip" id="breakeven-runs" data-format="([a-z0-9-]{1,40})" '
    rb'data-sha256="([0-9a-f]{64})">([A-Za-z0-9+/=]*)</script>'
)


def report_element(archive: bytes) -> str:
    """The archive as an HTML element that browsers neither show nor execute."""
    packed = base64.b64encode(archive).decode()
    return f'{_BEFORE} data-format="{FORMAT}" data-sha256="{digest(archive)}">{packed}</script>'


def digest(archive: bytes) -> str:
    return hashlib.sha256(archive).hexdigest()


def archive_in_report(report: Path) -> bytes:
    """The archive of run folders in a report; raises `ImportUnusable`."""
    if report.stat().st_size > MAX_REPORT_BYTES:
        limit = f"{MAX_REPORT_BYTES // 2**20} MiB"
        raise ImportUnusable(f"it is larger than {limit}")
    content = report.read_bytes()
    archives = _ELEMENT.findall(content)
    if len(archives) != 1 or content.count(_BEFORE.encode()) != 1:
        raise ImportUnusable(
            f"it is no report of Breakeven, or it was changed: it holds {len(archives) or 'no'} "
            "archives of runs, where a report has one"
        )
    format, stored_digest, packed = archives[0]
    if format.decode() != FORMAT:
        raise ImportUnusable(
            f"it is of the format {format.decode()}, which this version of Breakeven does not "
            f"know (it knows {FORMAT})"
        )
    try:
        archive = base64.b64decode(packed, validate=True)
    except binascii.Error as error:
        raise ImportUnusable(f"it was changed ({error})") from None
    if digest(archive) != stored_digest.decode():
        raise ImportUnusable("its data were changed since it was written (the digest differs)")
    return archive
