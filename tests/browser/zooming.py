"""Zooms charts in a browser with the mouse."""

from playwright.sync_api import Locator

from tests.helpers.waiting import wait_until

RANGE = "box => box.layout.xaxis.range"


def zoom(chart: Locator) -> list[float]:
    """Drags over the middle of a drawn chart; returns the range of x that it then shows."""
    plot = chart.locator(".nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    mouse, height = chart.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + box["width"] * 0.3, height)
    mouse.down()
    mouse.move(box["x"] + box["width"] * 0.6, height + 2, steps=5)
    before = x_range(chart)
    mouse.up()
    wait_until(lambda: x_range(chart) != before)
    return x_range(chart)


def x_range(chart: Locator) -> list[float]:
    """The range of x that a drawn chart shows."""
    x_range: list[float] = chart.locator(".js-plotly-plot").first.evaluate(RANGE)
    return x_range
