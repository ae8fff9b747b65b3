"""Who talks to whom: the console, the PCs of each pipeline, those in reserve, and the rest. No Qt.

The console is at the left; each pipeline is a row, its standbys below its stages; who does nothing is at the bottom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from agent.volunteer.clauses import told
from console.api.admin import types as wire
from console.gui.plans import words
from console.gui.plans.geometry import Box
from console.gui.times import size_text
from console.pipeline.types import StageStatus
from shard_export.library.counts import counted

CONSOLE = "console"
MOST_IDLE = 24
"""How many PCs that do nothing are drawn; the others are counted."""

Role = Literal["console", "stage", "hot", "warm", "idle", "away"]
Way = Literal["console", "direct", "relay", "reserve"]

ROLE_WORDS: dict[Role, str] = {
    "console": "The console", "stage": "Serving", "hot": "Hot standby", "warm": "Warm standby", "idle": "Idle",
    "away": "Away",
}  # fmt: skip
WAY_WORDS: dict[Way, str] = {
    "console": "link with the console", "direct": "direct", "relay": "relayed by the console", "reserve": "in reserve",
}  # fmt: skip


class Node(NamedTuple):
    """Something on the map. A PC that serves two pipelines is in both; `row` is its pipeline, -1 for none."""

    key: str
    device_id: str
    name: str
    role: Role
    lines: tuple[str, ...]
    row: int = -1

    @property
    def words(self) -> str:
        """Everything of it in a sentence."""
        return f"{self.name}: {ROLE_WORDS[self.role].lower()}. {'. '.join(self.lines)}".rstrip(". ") + "."


class Strand(NamedTuple):
    """What goes from one node to another, and how; `note` says why it is relayed."""

    source: str
    target: str
    way: Way
    carries: str
    round_trip_ms: float | None = None
    bytes_per_s: float | None = None
    note: str = ""

    @property
    def label(self) -> str:
        """What is said beside the line."""
        if self.target == CONSOLE:
            return ""
        way = {"console": "", "direct": "direct", "relay": "relayed", "reserve": ""}[self.way]
        return ", ".join(filter(None, (way, f"{self.round_trip_ms:.1f} ms" if self.round_trip_ms else "")))


class Map(NamedTuple):
    """Everything; `rows` names the pipelines, `more` counts the PCs that are not drawn."""

    nodes: tuple[Node, ...]
    strands: tuple[Strand, ...]
    rows: tuple[str, ...]
    more: int


def map_of(status: wire.Status, agents: Sequence[wire.Agent]) -> Map:
    """Draw up who talks to whom now."""
    known = {agent.device_id: agent for agent in agents}
    nodes = [
        Node(CONSOLE, "", "Console", "console", (f"{status.agents_connected} of {counted(status.agents_known, 'PC')}",))
    ]
    strands: list[Strand] = []
    for row, pipeline in enumerate(status.pipelines):
        made, between = _pipeline(row, pipeline, known)
        nodes += made
        strands += between
    used = {node.device_id for node in nodes}
    rest = [agent for agent in agents if agent.state == "active" and agent.device_id not in used]
    rest.sort(key=lambda agent: (agent.link == "offline", agent.name.casefold(), agent.device_id))
    nodes += [_idle(agent) for agent in rest[:MOST_IDLE]]
    return Map(tuple(nodes), tuple(strands), tuple(_row_name(one) for one in status.pipelines), len(rest[MOST_IDLE:]))


def _pipeline(
    row: int, pipeline: wire.PipelineView, known: Mapping[str, wire.Agent]
) -> tuple[list[Node], list[Strand]]:
    links = {link.stage: link for link in pipeline.links}
    nodes, strands, before = [], [], CONSOLE
    for index, stage in enumerate(pipeline.stages):
        agent = known.get(stage.device_id)
        key = f"{row}:{index}"
        nodes.append(Node(key, stage.device_id, stage.device_name, _role(agent), _lines(stage, agent), row))
        link = links.get(index)
        way: Way = "console" if index == 0 else "relay" if link is None else link.way
        trip = _trip(agent) if way == "console" else (link.round_trip_ms or None) if link is not None else None
        carries = "tokens" if index == 0 else "hidden states"
        note = link.reason if link is not None else ""
        strands.append(Strand(before, key, way, carries, trip, _speed(agent) if way == "console" else None, note))
        before = key
    if len(pipeline.stages) > 1:
        tail = known.get(pipeline.stages[-1].device_id)
        strands.append(Strand(before, CONSOLE, "console", "sampled tokens", _trip(tail)))
    for index, standby in enumerate(pipeline.standbys):
        key = f"{row}:standby {index}"
        agent = known.get(standby.device_id)
        text = f"for {words.layers(standby.first, standby.last)}"
        nodes.append(Node(key, standby.device_id, standby.device_name, standby.kind, (text, *_link(agent)), row))
        strands.append(Strand(CONSOLE, key, "reserve", text, _trip(agent), _speed(agent)))
    return nodes, strands


def _lines(stage: StageStatus, agent: wire.Agent | None) -> tuple[str, ...]:
    speed = (f"{stage.ms_per_step:.1f} ms a step",) if stage.ms_per_step else ()
    return (words.layers(stage.first, stage.last).capitalize(), *speed, *_link(agent))


def _link(agent: wire.Agent | None) -> tuple[str, ...]:
    trip = _trip(agent)
    speed = _speed(agent)
    parts = [] if trip is None else [f"{trip:.1f} ms"]
    parts += [] if speed is None else [f"{size_text(speed)}/s"]
    return (f"Link {', '.join(parts)}",) if parts else ()


def _idle(agent: wire.Agent) -> Node:
    role: Role = "away" if agent.link == "offline" else "idle"
    held = told(agent.held_because)
    lines = (f"Held: {held}",) if held and role == "idle" else ()
    return Node(agent.device_id, agent.device_id, agent.name, role, lines + (_link(agent) if role == "idle" else ()))


def _role(agent: wire.Agent | None) -> Role:
    return "away" if agent is not None and agent.link == "offline" else "stage"


def _trip(agent: wire.Agent | None) -> float | None:
    return None if agent is None else agent.round_trip_ms


def _speed(agent: wire.Agent | None) -> float | None:
    return None if agent is None else agent.down_bytes_per_s


def _row_name(pipeline: wire.PipelineView) -> str:
    which = f", pipeline {pipeline.number + 1}" if pipeline.request.replicas > 1 else ""
    return f"{pipeline.model}{which}: {pipeline.state}"


WIDTH, HEIGHT, APART, ROW_APART = 12.0, 5.9, 7.5, 2.0
"""Of a node and the space beside and below it, in lines of text."""
HEADING = 1.6


class Placed(NamedTuple):
    """Where the nodes are by key, where each pipeline's name is, the bottom heading's place, and the size of all."""

    boxes: dict[str, Box]
    headings: list[tuple[float, float]]
    rest_y: float
    width: float
    height: float


def placed(drawn: Map, width: float, line: float) -> Placed:
    """Put everything; `width` is what there is, `line` the height of a line of text."""
    across, down = (WIDTH + APART) * line, (HEIGHT + ROW_APART) * line
    left = line + across
    boxes: dict[str, Box] = {}
    headings, y = [], line * 0.6
    for row in range(len(drawn.rows)):
        headings.append((left, y))
        y += HEADING * line
        for kind in ("stage", "standby"):
            mine = [one for one in drawn.nodes if one.row == row and ("standby" in one.key) == (kind == "standby")]
            for place, node in enumerate(mine):
                boxes[node.key] = Box(left + place * across, y, WIDTH * line, HEIGHT * line)
            y += down if mine else 0.0
    rest_y = y
    rest = [node for node in drawn.nodes if node.row < 0 and node.key != CONSOLE]
    narrow = (WIDTH + 1.0) * line
    columns = max(1, int((width - 2 * line) / narrow))
    y += HEADING * line if rest else 0.0
    for place, node in enumerate(rest):
        at_x, at_y = line + place % columns * narrow, y + place // columns * (HEIGHT + 0.6) * line
        boxes[node.key] = Box(at_x, at_y, WIDTH * line, HEIGHT * line)
    middle = max(0.6 * line, (rest_y - HEIGHT * line) / 2) if drawn.rows else 0.6 * line
    if not drawn.rows:
        # Nothing is served: the console stands above the PCs.
        shift = (HEIGHT + ROW_APART) * line
        boxes = {key: box._replace(y=box.y + shift) for key, box in boxes.items()}
        rest_y += shift
    boxes[CONSOLE] = Box(line, middle, WIDTH * line, HEIGHT * line)
    right = max(box.x + box.width for box in boxes.values())
    bottom = max(box.y + box.height for box in boxes.values())
    return Placed(boxes, headings, rest_y, max(width, right + line), bottom + 2 * line)
