"""Rows on S3-compatible storage, as moto serves it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from breakeven.storage.index.store import Store
from breakeven.storage.team.address import Address
from breakeven.storage.team.commands import upkeep
from breakeven.storage.team.store import TeamStore
from tests.helpers.journals import experiment_spec, record_experiment
from tests.helpers.team.postgres import free_port
from tests.helpers.team.stores import contents, data_folder, grow

pytestmark = [pytest.mark.heavy, pytest.mark.slow]
SERVING = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket, which the environment says how to reach."""
    place = f"http://127.0.0.1:{free_port()}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": place,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", SERVING, place.rpartition(":")[2]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(100):
            try:
                urlopen(Request(f"{place}/team", method="PUT"), timeout=5)
                break
            except OSError:
                time.sleep(0.2)
        yield "s3://team/store"
        server.kill()


def test_rows_may_lie_on_s3(request: pytest.FixtureRequest, bucket: str, tmp_path: Path) -> None:
    place = request.getfixturevalue("postgres").new_database()
    source, folder = data_folder(tmp_path / "source"), data_folder(tmp_path / "folder")
    record_experiment(source.runs, experiment_spec(num_steps=1200))
    with TeamStore.at(Address("postgres", place, bucket), folder) as store:
        for share in (0.3, 0.6, 1.0):
            grow(source, folder, share)
            store.ingest_all()
        list(upkeep(store._lake, days=0))
    # Another machine need not be told where the rows lie.
    elsewhere = data_folder(tmp_path / "elsewhere")
    with (
        TeamStore.at(Address("postgres", place, None), elsewhere) as reader,
        Store.in_memory(folder) as embedded,
    ):
        assert contents(reader) == contents(embedded)
        with reader._lake.reading() as cursor:
            found = cursor.execute("FROM ducklake_list_files('team', 'steps')").fetchall()
        assert found
        assert all(str(row[0]).startswith("s3://team/store/") for row in found)
