"""Which guesses a deployment uses: the word of `--draft` becomes the draft source of its coordinator."""

from __future__ import annotations

import asyncio
import logging

from agent.stage.types import Epoch, PipelineId, StageSpec
from console.api.admin import types as wire
from console.errors import DeployRefused
from console.libraries import LibraryShelf, LoadedLibrary
from console.pipeline.drafts import DraftSource, NoDrafts
from console.pipeline.speculation.draft_model import DraftModel
from console.pipeline.speculation.proposers import LookupProposer
from console.pipeline.speculation.speculator import Speculator
from console.pipeline.tokens import TextCodec
from shard_export.library.chat import ChatCodec
from shard_export.library.errors import ChatUnusable
from shard_export.library.vocabulary import misfit

log = logging.getLogger(__name__)

LOOKUP, NONE = "lookup", "none"


async def check_draft(shelf: LibraryShelf, request: wire.DeployRequest) -> None:
    """Check that a request's draft model exists and means the same by a token id. Raises DeployRefused."""
    if request.draft in {LOOKUP, NONE}:
        return
    draft, target = shelf.of_model(request.draft, "draft"), shelf.of_model(request.model)
    found = await asyncio.to_thread(_misfit, draft, target)
    if found:
        raise DeployRefused(
            f"{request.draft} cannot draft for {request.model}: {found}; choose a draft of the same model family and "
            "version, or --draft lookup."
        )


def drafts_from(shelf: LibraryShelf, request: wire.DeployRequest) -> str:
    """Return the digest of the library of a request's draft model; empty: it has none, or that is gone."""
    if request.draft in {LOOKUP, NONE}:
        return ""
    try:
        return shelf.of_model(request.draft, "draft").digest
    except DeployRefused:
        return ""


def draft_library(shelf: LibraryShelf, request: wire.DeployRequest) -> LoadedLibrary | None:
    """Find the library of a request's draft model; one that is gone by now costs the drafts, not the model."""
    if request.draft in {LOOKUP, NONE}:
        return None
    try:
        return shelf.of_model(request.draft, "draft")
    except DeployRefused as error:
        log.warning("%s is served without drafts: %s", request.model, error)
        return None


def _misfit(draft: LoadedLibrary, target: LoadedLibrary) -> str:
    try:
        ours, theirs = (
            ChatCodec.load(library.folder, library.manifest.tokens, library.manifest.model_id).tokenizer
            for library in (draft, target)
        )
    except ChatUnusable as error:
        raise DeployRefused(str(error)) from None
    return misfit(ours, draft.manifest.vocab_size, theirs)


def make_drafts(
    request: wire.DeployRequest, draft: LoadedLibrary | None, tokenizer: TextCodec, pipeline: PipelineId, epoch: Epoch
) -> tuple[DraftSource, DraftModel | None]:
    """Make what a coordinator guesses with, and the draft model behind it, not started yet, if there is one.

    `draft` is the library that `request.draft` names; without it the model is served without drafts.
    """
    if request.draft == LOOKUP:
        return Speculator(LookupProposer()), None
    if request.draft == NONE:
        return NoDrafts(), None
    if draft is None:
        return NoDrafts(f"The library of {request.draft} cannot be used; see: fallow-console models"), None
    manifest = draft.manifest
    spec = StageSpec(
        folder=str(draft.folder),
        first=0,
        last=manifest.layer_count,
        pipeline=pipeline,
        epoch=epoch,
        stage=0,
        numerics=request.numerics,
        context_tokens=min(request.context, manifest.context_tokens),
        streams=request.streams,
        constrains=False,
    )
    model = DraftModel(manifest.model_id, spec, vocab_size=tokenizer.vocab_size, stops=tokenizer.eos_ids)
    return Speculator(model), model
