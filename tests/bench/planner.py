"""`planner`: how long a plan takes: 100 layers on 300 PCs and on 1,000, of many speeds and sizes, in one process.

`plan_ms` is one pipeline from nothing, `replan_ms` the same after a PC of it has left, `fleet_ms` six pipelines of two
models, `standbys_ms` two standbys for each stage. Each is over fleets of different seeds; `cpu` is the processor time
of the median and of the 95th of a hundred, which a busy machine changes less than the clock's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from console.bench.figures import percentile
from console.planner.fleets import plan_fleet
from console.planner.ranges import plan
from console.planner.standbys import choose_standbys
from console.planner.types import AgentFacts, Demand, ModelFacts

Say = Callable[[str], None]
MB = 1_000_000
LAYERS, PCS = 100, (300, 1000)
FLEETS = 8
PROMISE: dict[str, Any] = {"context_tokens": 2048, "streams": 8}

T = TypeVar("T")


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Time every size; `rounds` times `FLEETS` fleets each, 0: one small fleet. `tokens` means nothing here."""
    del tokens
    sizes = {pcs: _measure(pcs, rounds * FLEETS, say) for pcs in PCS} if rounds else {20: _measure(20, 1, say)}
    first = next(iter(sizes.values()))
    return {"layers": LAYERS, **first, "by_pcs": {str(pcs): figures for pcs, figures in sizes.items()}}


def _measure(pcs: int, fleets: int, say: Say) -> dict[str, Any]:
    taken: dict[str, list[tuple[float, float]]] = {"plan": [], "replan": [], "standbys": [], "fleet": []}
    for seed in range(fleets):
        model, fleet = model_of(LAYERS), fleet_of(pcs, seed)
        found = _timed(taken["plan"], lambda: plan(model, fleet, **PROMISE))  # noqa: B023 - called at once
        left = [agent for agent in fleet if agent.device_id != found.stages[0].device_id]
        _timed(taken["replan"], lambda: plan(model, left, current=found, **PROMISE))  # noqa: B023
        count = 2 * len(found.stages)
        _timed(taken["standbys"], lambda: choose_standbys(found, model, fleet, count=count))  # noqa: B023
        demands = [Demand(model=one, agents=fleet, pipelines=3, **PROMISE) for one in (model, model_of(30))]
        _timed(taken["fleet"], lambda: plan_fleet(demands))  # noqa: B023
    figures = {f"{name}_ms": _figures(times) for name, times in taken.items()}
    say(f"{pcs} PCs: {figures}")
    return figures


def _figures(times: list[tuple[float, float]]) -> dict[str, float]:
    clock, cpu = zip(*times, strict=True)
    shares = {"p50": 0.5, "p95": 0.95}
    found = {name: round(percentile(clock, share), 1) for name, share in shares.items()}
    return found | {f"cpu_{name}": round(percentile(cpu, share), 1) for name, share in shares.items()}


def _timed(times: list[tuple[float, float]], work: Callable[[], T]) -> T:
    """Note how long it takes, in milliseconds of the clock and of the processor."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    result = work()
    times.append(((time.perf_counter() - began_s) * 1000, (time.process_time() - began_cpu_s) * 1000))
    return result


def model_of(layers: int) -> ModelFacts:
    """Return a model of 300 MB a layer."""
    return ModelFacts(f"model-{layers}", [300 * MB] * layers, [4096] * layers, 500 * MB, 8192, 500 * MB, 16384)


def fleet_of(pcs: int, seed: int) -> list[AgentFacts]:
    """Return PCs of which no two are alike."""
    chance = random.Random(seed)
    return [
        AgentFacts(
            f"pc-{number:04}",
            f"pc-{number:04}",
            chance.randrange(3000, 12_000) * MB,
            chance.uniform(0.02, 0.1),
            stay=chance.uniform(0.5, 1.0),
            held=frozenset(range(50)) if chance.random() < 0.3 else frozenset(),
            rtt_ms=chance.uniform(0.3, 3.0),
        )
        for number in range(pcs)
    ]
