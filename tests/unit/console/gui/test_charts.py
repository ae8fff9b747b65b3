"""console.gui.charts: what is drawn of values with gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from console.gui.charts import drawable

GAP = None


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], []),
        ([GAP, GAP], [GAP, GAP]),
        ([1.0, 2.0, GAP, 3.0, 4.0], [1.0, 2.0, GAP, 3.0, 4.0]),
        ([GAP, 5.0, GAP, GAP], [GAP, 5.0, 5.0, GAP]),
        ([GAP, GAP, 7.0], [GAP, 7.0, 7.0]),
        ([7.0], [7.0]),
        ([1.0, GAP, 2.0, GAP, 3.0], [1.0, 1.0, 2.0, 3.0, 3.0]),
    ],
)
def test_a_single_value_between_gaps_can_be_seen(values: Sequence[float | None], drawn: Sequence[float | None]) -> None:
    expected = np.array([np.nan if one is None else one for one in drawn], np.float64)
    np.testing.assert_array_equal(drawable(values), expected)
