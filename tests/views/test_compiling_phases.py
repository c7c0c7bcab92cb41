"""The phases of compiling while a backend compiles."""

import pandas as pd

from breakeven.storage.compiling.timeline import PhaseTimes
from breakeven.views.parts import progress

NOW = pd.Timestamp("2026-11-22 12:00", tz="UTC")


def test_phases_now_and_last_time_share_a_scale_and_what_goes_on_is_told_by_the_last_time():
    last = {"Dynamo": 2.0, "AOTAutograd": 8.0}
    since = NOW - pd.Timedelta(seconds=4)
    html = progress.compiling_html(
        [
            PhaseTimes(
                label="inductor", since=since, seconds_by_phase={}, earlier_seconds_by_phase=last
            ),
            PhaseTimes(
                label="eager",
                since=None,
                seconds_by_phase={"Dynamo": 5.0},
                earlier_seconds_by_phase={},
            ),
        ],
        NOW,
    )
    assert "then in AOTAutograd last time" in html
    assert 'title="Dynamo: 2.0 s" style="width: 20.00%' in html
    assert 'title="going on: 4.0 s" style="width: 40.00%"' in html
    assert 'title="Dynamo: 5.0 s" style="width: 50.00%' in html
    assert progress.compiling_html([], NOW) == ""
