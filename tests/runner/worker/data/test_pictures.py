"""Pictures of a table: unpacked one by one, whatever they unpack to and wherever they lead."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import PIL.Image
import pytest

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.data.images import MAX_PIXELS, images_of

pytestmark = pytest.mark.heavy


def packed(width: int, height: int, colour: object = "red", kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    PIL.Image.new("RGB", (width, height), colour).save(stream, kind)  # type: ignore[arg-type]
    return stream.getvalue()


def table(*cells: Mapping[str, Any]) -> Any:
    rows = datasets.Dataset.from_dict(
        {"image": list(cells)}, features=datasets.Features({"image": datasets.Image(decode=False)})
    )
    return images_of(rows, "image", "a table")


def test_pictures_are_those_that_were_packed_in_their_order_whole_and_in_parts(
    tmp_path: Path,
) -> None:
    colours = ["red", "blue", "green"]
    (tmp_path / "blue.jpg").write_bytes(packed(4, 4, "blue", "JPEG"))
    images = table(
        {"bytes": packed(4, 4, "red"), "path": None},
        {"bytes": None, "path": str(tmp_path / "blue.jpg")},
        {"bytes": packed(4, 4, "green"), "path": None},
    )
    assert len([*images]) == 3 and len([*images[1:]]) == 2
    for image, colour in zip(images[0:3], colours, strict=True):
        expected = np.array(PIL.Image.new("RGB", (1, 1), colour)).reshape(3)
        assert np.abs(np.array(image).astype(int) - expected).max() <= 2  # JPEG rounds


def test_a_picture_is_unpacked_when_its_turn_comes_and_none_of_a_hundred_megapixels(
    tmp_path: Path,
) -> None:
    side = int(MAX_PIXELS**0.5) + 1
    stream = io.BytesIO()
    PIL.Image.new("1", (side, side)).save(stream, "PNG")
    assert len(stream.getvalue()) < 50_000
    images = table(
        {"bytes": packed(2, 2), "path": None}, {"bytes": stream.getvalue(), "path": None}
    )
    assert next(iter(images)).size == (2, 2)
    with pytest.raises(WorkloadError, match="10,001 x 10,001 pixels are more than 100,000,000"):
        list(images)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{} loop\n%%EOF\n"


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ({"bytes": EPS, "path": None}, "cannot identify"),
        ({"bytes": None, "path": "http://127.0.0.1:9/a.png"}, "No such file"),
        ({"bytes": None, "path": "zip://a.png::http://127.0.0.1:9/a.zip"}, "No such file"),
        ({"bytes": None, "path": "/dev/zero"}, "no plain file"),
    ],
)
def test_neither_programs_nor_the_network_nor_devices_are_pictures(
    cell: dict[str, Any], why: str
) -> None:
    with pytest.raises(WorkloadError, match=why):
        list(table(cell))


def test_a_pipe_in_place_of_a_picture_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(WorkloadError, match="no plain file"):
        list(table({"bytes": None, "path": str(tmp_path / "pipe.png")}))
