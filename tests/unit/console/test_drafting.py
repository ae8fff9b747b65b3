"""What `--draft` says becomes a draft source, and a draft model that does not fit or work is named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent.stage.types import Epoch, PipelineId
from console.api.admin import types as wire
from console.drafting import draft_library, make_drafts
from console.errors import DeployRefused
from console.libraries import LibraryShelf
from console.pipeline.tokens import ModelTokenizer, ToolCodec
from console.pipeline.types import Finished, SpeculationStatus, Text
from console.registry.audit import CONSOLE
from console.registry.errors import WrongState
from console.registry.registry import Registry
from console.status_tables import status_tables
from tests.conftest import ExpectLogs
from tests.support.byte_tokens import VOCABULARY, byte_tokenizer
from tests.support.deployments import all_events, ask, deploying, request
from tests.support.fleet import Fleet
from tests.support.played import make_chat_library, playing

DRAFT_MODEL = "console.pipeline.speculation.draft_model"


def make_codec() -> ModelTokenizer:
    return ModelTokenizer(ToolCodec(byte_tokenizer()), eos_ids=[])


def add_library(folder: Path, registry: Registry, fleet: Fleet, **fields: Any) -> None:
    manifest = make_chat_library(folder, **fields)
    registry.libraries.add(fleet.distribution.register(folder), manifest.model_id, str(folder))


def other_tokenizer() -> str:
    content = json.loads(byte_tokenizer().to_str())
    vocabulary = content["model"]["vocab"]
    one, other = list(vocabulary)[:2]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    return json.dumps(content)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"model_id": "other"}, "There is no layer library of 'tiny'"),
        ({"tokenizer": other_tokenizer()}, "tiny cannot draft for small: token 0 is"),
        ({"vocab_size": VOCABULARY - 1}, f"it reads {VOCABULARY - 1} tokens"),
    ],
)
async def test_a_draft_that_does_not_fit_is_refused(
    tmp_path: Path, fleet: Fleet, registry: Registry, fields: dict[str, Any], sentence: str
) -> None:
    add_library(tmp_path / "target", registry, fleet)
    add_library(tmp_path / "draft", registry, fleet, **{"model_id": "tiny"} | fields)
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        broken = (await all_events(deployments, request(draft="tiny")))[-1]
        assert isinstance(broken, wire.Broken)
        assert sentence in broken.message


async def test_a_draft_model_that_cannot_be_loaded_costs_only_the_drafts(
    tmp_path: Path, fleet: Fleet, registry: Registry, expected_logs: ExpectLogs
) -> None:
    expected_logs(DRAFT_MODEL, "tiny gives no drafts")
    add_library(tmp_path / "target", registry, fleet)
    add_library(tmp_path / "draft", registry, fleet, model_id="tiny", role="draft")
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        assert isinstance((await all_events(deployments, request(draft="tiny")))[-1], wire.Ready)
        drafting = deployments._shelf.of_model("tiny").digest
        with pytest.raises(WrongState, match="small is served with it as its draft model"):
            deployments._shelf.remove(drafting, CONSOLE)
        answer = await ask(deployments)
        assert "".join(event.text for event in answer if isinstance(event, Text)) == "Paris."
        assert isinstance(answer[-1], Finished)
        async with asyncio.timeout(60):
            while not deployments.views()[0].speculation.reason.startswith("The draft model is out"):
                await asyncio.sleep(0.02)
        status = deployments.views()[0].speculation
        assert (status.source, status.drafts_per_round) == ("tiny", 0)


async def test_a_draft_model_that_is_gone_by_now_costs_only_the_drafts(
    tmp_path: Path, fleet: Fleet, registry: Registry, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.drafting", "served without drafts")
    shelf = LibraryShelf(registry, fleet.distribution)
    asked = request(draft="tiny")
    assert draft_library(shelf, asked) is None
    source, model = make_drafts(asked, None, make_codec(), PipelineId(1), Epoch(1))
    assert model is None
    assert source.status().reason == "The library of tiny cannot be used; see: fallow-console models"


async def test_a_model_is_served_from_the_library_made_for_it(tmp_path: Path, fleet: Fleet, registry: Registry) -> None:
    add_library(tmp_path / "target", registry, fleet)
    add_library(tmp_path / "draft", registry, fleet, role="draft")
    shelf = LibraryShelf(registry, fleet.distribution)
    await shelf.open()
    assert shelf.of_model("small").manifest.role == "target"
    assert shelf.of_model("small", "draft").manifest.role == "draft"
    with pytest.raises(DeployRefused):
        shelf.of_model("tiny", "draft")


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (
            SpeculationStatus("lookup", 0.625, 4.25, 3.656),
            "Drafts (lookup): 4.2 a round, 62% of them right, 3.66 tokens a round",
        ),
        (SpeculationStatus(reason="Switched off."), "Hardly any drafts (none): Switched off."),
    ],
)
def test_the_status_says_how_guessing_goes(status: SpeculationStatus, line: str) -> None:
    view = wire.PipelineView("small", "ready", "", 1, wire.Probe(), request(), speculation=status)
    shown = wire.Status("0.1.0", 0.0, "http://127.0.0.1", [], 1, 1, [view])
    assert line in list(status_tables(shown))
