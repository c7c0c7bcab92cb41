"""Data folders as released versions left them, made by those versions themselves: of each an
experiment of every kind of event, one that went through, one that was cancelled, one that was cut
off, and one that waits in the queue; and their database."""

import json
import socket
import tarfile
from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir

FOLDER = Path(__file__).parent
VERSIONS = sorted(file.name.removesuffix(".tar.gz") for file in FOLDER.glob("*.tar.gz"))


def left_by(version: str, folder: Path) -> DataDir:
    """The data folder of that version, as if it had worked on this machine."""
    with tarfile.open(FOLDER / f"{version}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    data_dir = DataDir(folder)
    for run in data_dir.run_dirs():
        if run.claim_file.exists():
            claim = json.loads(run.claim_file.read_text())
            run.claim_file.write_text(json.dumps({**claim, "host": socket.gethostname()}))
    return data_dir
