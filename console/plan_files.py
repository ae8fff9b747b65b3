"""Plans as files that people edit: a DeployRequest with its `plan`, as JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec

from console.api.admin import types as wire
from console.api.admin.plan_types import Plans
from console.data import write_whole
from console.errors import ClientError

MOST_BYTES = 4 << 20


def request_with(request: wire.DeployRequest, plans: Plans) -> wire.DeployRequest:
    """Return a request that says what was planned for it, to be changed by hand."""
    plan = [
        [wire.GivenStage(stage.device_id, stage.first, stage.last) for stage in pipeline.plan.stages]
        for pipeline in plans.pipelines
    ]
    return msgspec.structs.replace(request, stages=None, replicas=len(plan), plan=plan)


def write_plan(path: Path, request: wire.DeployRequest) -> None:
    """Write a request with its plan. Raises ConsoleError."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(request), indent=2) + b"\n")


def read_plan(path: Path) -> wire.DeployRequest:
    """Read a request with its plan. Raises ClientError."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > MOST_BYTES:
        raise ClientError(f"{path} is larger than any plan; name a file that `fallow-console plan --write` made.")
    try:
        request = msgspec.json.decode(data, type=wire.DeployRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ClientError(f"{path} is no plan: {error}.") from None
    if not request.plan:
        raise ClientError(f"{path} says no plan; make one with: fallow-console plan MODEL --write {path}")
    return request
