"""Where lanes, stages and borders are: pure numbers, in the unit of the view. No Qt."""

from __future__ import annotations

from typing import NamedTuple

from console.gui.plans.model import Edited, Lane, Place

TITLE, TICKS, BLOCK, STRIP, GAP = 1.6, 1.2, 5.9, 1.5, 1.3
"""Heights in lines of text: a lane's heading, its layer numbers, its stages, what runs now, and the gap to the next."""
FEWEST_TICK_LINES = 2.5
"""How far layer numbers are apart at least, in lines."""
GRAB_LINES = 0.4
"""How near to a border the mouse takes it."""


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    def holds(self, x: float, y: float) -> bool:
        """Whether a point is inside."""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


class LaneBoxes(NamedTuple):
    """One lane: from above its heading, layer numbers, stages, and what runs now (empty where nothing does)."""

    heading: Box
    ticks: list[tuple[float, int]]
    ticks_y: float
    stages: list[Box]
    running: list[Box]


class Layout(NamedTuple):
    """All lanes."""

    lanes: list[LaneBoxes]
    left: float
    layer_width: float
    height: float
    line: float

    def stage_at(self, x: float, y: float) -> Place | None:
        """Return the stage under a point."""
        for number, lane in enumerate(self.lanes):
            for index, box in enumerate(lane.stages):
                if box.holds(x, y):
                    return Place(number, index)
        return None

    def border_at(self, x: float, y: float) -> Place | None:
        """Return the stage whose end is under a point; the last one's cannot be moved."""
        for number, lane in enumerate(self.lanes):
            for index, box in enumerate(lane.stages[:-1]):
                near = abs(box.x + box.width - x) <= min(GRAB_LINES * self.line, box.width / 3)
                if near and box.y <= y < box.y + box.height:
                    return Place(number, index)
        return None

    def border_near(self, x: float) -> int:
        """Return the border between layers that is nearest to a point."""
        return round((x - self.left) / self.layer_width)


def lay_out(plan: Edited, live: Edited | None, width: float, line: float) -> Layout:
    """Put the lanes below each other; `width` is what there is for all, `line` the height of a line of text."""
    margin = line * 0.6
    layer_width = max(width - 2 * margin, line) / max(1, plan.layers)
    lanes, y = [], margin / 2
    for number, lane in enumerate(plan.lanes):
        heading = Box(margin, y, width - 2 * margin, TITLE * line)
        ticks_y = y + TITLE * line
        blocks_y = ticks_y + TICKS * line
        below = live.lanes[number] if live is not None and number < len(live.lanes) else ()
        running = _boxes(below, margin, layer_width, blocks_y + (BLOCK + 0.2) * line, (STRIP - 0.3) * line)
        ticks = [(margin + layer * layer_width, layer) for layer in _ticks(plan.layers, layer_width, line)]
        stages = _boxes(lane, margin, layer_width, blocks_y, BLOCK * line)
        lanes.append(LaneBoxes(heading, ticks, ticks_y, stages, running))
        y = blocks_y + (BLOCK + (STRIP if below else 0.0) + GAP) * line
    return Layout(lanes, margin, layer_width, y, line)


def _boxes(lane: Lane, left: float, layer_width: float, y: float, height: float) -> list[Box]:
    return [
        Box(left + stage.first * layer_width, y, (stage.last - stage.first) * layer_width, height) for stage in lane
    ]


def _ticks(layers: int, layer_width: float, line: float) -> range:
    """Return the layers to number: every one, every second, fourth, ... as there is room."""
    step = 1
    while step * layer_width < FEWEST_TICK_LINES * line and step < layers:
        step *= 2
    return range(0, layers, step)
