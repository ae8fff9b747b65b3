"""The service of `admin_window`, in a process of its own: answers of a fleet that changes all the time.

`python -m tests.bench.admin_answers PCS` prints its port and answers until standard input ends.
"""

from __future__ import annotations

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from console.api.admin import types as wire
from console.api.admin.guard import PREFIX
from tests.support.shown_fleet import GIB, make_fleet, make_pipeline, make_status

OWNER = wire.Me("key", "", ["admin"])


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fleet: list[wire.Agent]

    def do_GET(self) -> None:
        body = msgspec.json.encode(self._answer(self.path.removeprefix(PREFIX).partition("?")[0]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def _answer(self, path: str) -> Any:
        tick = int(time.time())
        if path == "/agents":
            return wire.Agents([_changed(agent, row, tick) for row, agent in enumerate(self.fleet)])
        if path == "/status":
            probe = wire.Probe(ok=True, age_s=float(tick % 15), ms=200.0)
            pipelines = [make_pipeline(f"model-{number}", 4, probe=probe, queued=tick % 5) for number in range(6)]
            return make_status(pipelines)
        if path == "/performance":
            measured = [
                wire.ModelPerformance(
                    f"model-{number}", 9, 400.0, 90.0, [float((tick + at) % 17) for at in range(180)],
                    [300.0 + (tick + at) % 90 for at in range(180)], [80.0 + (tick + at) % 20 for at in range(180)],
                )
                for number in range(6)
            ]  # fmt: skip
            return wire.Performances(5.0, measured)
        return {"/me": OWNER, "/libraries": wire.Libraries([])}.get(path, wire.Done())


def _changed(agent: wire.Agent, row: int, tick: int) -> wire.Agent:
    """Every connected PC says something else each time, one in fifty comes or goes."""
    away = agent.state == "active" and (row + tick) % 50 == 0
    free = (4 * GIB + (row * 7919 + tick * 104_729) % (8 * GIB)) if agent.link == "connected" and not away else 0
    return msgspec.structs.replace(
        agent, memory_free_bytes=free, seen_s=float(tick), link="offline" if away else agent.link
    )


def main() -> None:
    """Serve until standard input ends."""
    _Answers.fleet = make_fleet(int(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
