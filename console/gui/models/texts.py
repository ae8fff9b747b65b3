"""Libraries, builds and pipelines as people read them. No Qt here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from console.api.admin import types as wire
from console.api.admin.build_types import PHASES, Build, Evaluation, Gate, Phase
from console.gui.times import age_text, size_text
from shard_export.library.counts import counted

STORED: Mapping[str, str] = {
    "auto": "Chosen by the source (recommended)",
    "int4_gptq": "4 bits, rounded by what the matrices read",
    "int4_asym": "4 bits, plain, with zero points",
    "int4_sym": "4 bits, plain",
    "int8_asym": "8 bits",
    "gguf": "The blocks of the GGUF file, as they are",
}
STATES: Mapping[str, str] = {
    "queued": "waits for its turn",
    "running": "running",
    "stopping": "stopping",
    "paused": "paused",
    "interrupted": "interrupted",
    "failed": "failed",
    "cancelled": "cancelled",
    "built": "built",
}
PHASE_TEXTS: Mapping[Phase, str] = {
    "opening": "Open the model",
    "preparing": "Tokenizer and embedding",
    "layers": "Layers",
    "finishing": "Head and final check",
    "evaluating": "Evaluate",
    "done": "Done",
}


def stored_text(library: wire.Library) -> str:
    """Say how a library's layers are stored."""
    return f"{library.layer_mode}, {library.bits_per_weight:.2f} bits" if library.layer_mode else "-"


def quality_text(library: wire.Library) -> str:
    """Say how close a library is to its source."""
    if library.top1_agreement is None or library.mean_kl is None:
        return "not measured"
    return f"{library.top1_agreement:.1%} same token, KL {library.mean_kl:.3f}"


def served_text(library: wire.Library, pipelines: Sequence[wire.PipelineView]) -> str:
    """Say where a model is deployed."""
    if library.problem:
        return "cannot be used"
    mine = [one for one in pipelines if one.model == library.model_id]
    if not mine:
        return "a draft" if library.role == "draft" else "not deployed"
    state = mine[0].state if len({one.state for one in mine}) == 1 else "partly ready"
    pcs = len({stage.device_id for one in mine for stage in one.stages})
    return f"{state}, {counted(pcs, 'PC')}" if pcs else state


def build_state_text(build: Build) -> str:
    """Say how a build is in a word or two."""
    if build.stalled:
        return "stalled"
    return "published" if build.published else STATES[build.state]


def build_progress_text(build: Build) -> str:
    """Say how far a build is."""
    if build.phase == "evaluating" and build.state == "running":
        return "evaluating"
    return f"{build.layer} of {counted(build.layer_count, 'layer')}" if build.layer_count else "-"


def left_text(build: Build) -> str:
    """Say how long a build will still take."""
    if build.state not in {"running", "stopping"}:
        return "-"
    return "not known" if build.left_s is None else f"about {age_text(build.left_s)}"


class PhaseRow(NamedTuple):
    """A phase of a build: what it is, how far (0 to 1; None: nobody knows), and what is said beside."""

    text: str
    share: float | None
    said: str


def phase_rows(build: Build) -> list[PhaseRow]:
    """Return the phases of a build, in order."""
    reached = PHASES.index(build.phase)
    shown = [phase for phase in PHASES if phase != "done" and (phase != "evaluating" or build.request.evaluate)]
    return [_phase_row(build, phase, PHASES.index(phase) - reached) for phase in shown]


def _phase_row(build: Build, phase: Phase, ahead: int) -> PhaseRow:
    layers = f"{build.layer} of {build.layer_count}" if phase == "layers" and build.layer_count else ""
    if build.state == "built" or ahead < 0:
        return PhaseRow(PHASE_TEXTS[phase], 1.0, layers or "done")
    if phase == "layers" and build.layer_count:
        return PhaseRow(PHASE_TEXTS[phase], build.layer / build.layer_count, layers)
    if ahead == 0 and build.state in {"running", "stopping"}:
        return PhaseRow(PHASE_TEXTS[phase], None, "running")
    return PhaseRow(PHASE_TEXTS[phase], 0.0, "")


def build_facts(build: Build) -> list[tuple[str, str]]:
    """Return what a build says about itself, with the names of it."""
    memory = "-"
    if build.memory_peak_bytes:
        now = f"{size_text(build.memory_bytes)} now, " if build.memory_bytes else ""
        memory = f"{now}{size_text(build.memory_peak_bytes)} at most"
    expected = f" (expected: {size_text(build.estimated_memory_bytes)})" if build.estimated_memory_bytes else ""
    return [
        ("Time left", left_text(build)),
        ("Rate", f"{build.layer_s:.1f} s a layer" if build.layer_s else "-"),
        ("Memory", memory + expected),
        ("From", build.request.source),
        ("Library", build.request.out),
    ]


def quality_lines(gate: Gate | None, evaluation: Evaluation | None, problem: str) -> list[str]:
    """Say how good a library became."""
    lines = []
    if gate is not None:
        lines.append(
            f"The build's own check: {gate.top1_agreement:.1%} of the next tokens are the same as the source's, "
            f"mean KL {gate.mean_kl:.3f}."
        )
    if evaluation is not None:
        lines.append(
            f"Evaluation on {counted(evaluation.positions, 'token')}: {evaluation.top1_agreement:.1%} the "
            "same, mean KL "
            f"{evaluation.mean_kl:.3f}, perplexity {evaluation.library_perplexity:.2f} "
            f"(source: {evaluation.source_perplexity:.2f}), {evaluation.layer_bits_per_weight:.2f} bits a weight."
        )
    if problem:
        lines.append(f"Evaluation: {problem}")
    return lines


def kept_text(build: Build) -> str:
    """Say before a cancellation what of a build is kept, and what that is good for."""
    if build.layer == 0:
        return "No layer is finished yet, so nothing is lost and nothing is kept."
    return (
        f"{build.layer} of {counted(build.layer_count, 'layer is', 'layers are')} finished. They are kept "
        f"beside {build.request.out}, and a "
        "build of the same model into the same folder goes on from there, unless you remove them now."
    )


def former_text(request: wire.DeployRequest | None) -> str:
    """Say what becomes of what was asked for a model before, where a form does not show it."""
    if request is None:
        return ""
    lines = []
    if request.plan:
        lines.append(
            "It runs by a plan made by hand. That is given up: the planner chooses the PCs anew. To change the plan "
            "itself, go to the page of plans."
        )
    if request.devices or request.rules != wire.PlanRules():
        lines.append("What was asked of its PCs before stays: which may take part, which have to, and their limits.")
    return " ".join(lines)


def pipeline_text(pipeline: wire.PipelineView, number_of: int) -> str:
    """Say how a pipeline is, and how old the proof of it is."""
    which = f"Pipeline {pipeline.number + 1}: " if number_of > 1 else ""
    return f"{which}{pipeline.state}. {probe_text(pipeline.probe)}"


def probe_text(probe: wire.Probe) -> str:
    """Say when a token last came through all stages."""
    if probe.age_s is None:
        return "No probe has run yet."
    if not probe.ok:
        return f"The last probe failed {age_text(probe.age_s)} ago: {probe.message}"
    return f"A token came through all stages {age_text(probe.age_s)} ago, in {probe.ms:.0f} ms."


def speculation_text(pipeline: wire.PipelineView) -> str:
    """Say how guessing ahead goes."""
    status = pipeline.speculation
    if status.source == "none":
        return "Guessing ahead: off."
    source = "the text so far" if status.source == "lookup" else status.source
    if status.reason:
        return f"Guessing ahead from {source}: {status.reason}"
    return (
        f"Guessing ahead from {source}: {status.acceptance:.0%} right, {status.tokens_per_round:.1f} tokens a round "
        f"with {status.drafts_per_round:.1f} guesses."
    )


def standbys_text(pipeline: wire.PipelineView) -> str:
    """Say who stands by."""
    if not pipeline.standbys:
        return "No PC stands by."
    each = [
        f"{one.device_name} ({one.kind}, layers {one.first}-{one.last - 1}{'' if one.ready else ', getting ready'})"
        for one in pipeline.standbys
    ]
    return f"Standing by: {', '.join(each)}."


def stage_rows(pipeline: wire.PipelineView) -> list[tuple[str, ...]]:
    """Return the stages of a pipeline: layers, PC, engine, way, milliseconds."""
    ways = ["direct" if link.way == "direct" else "through the console" for link in pipeline.links]
    return [
        (
            f"{stage.first}-{stage.last - 1}",
            stage.device_name,
            stage.engine if stage.fused else f"{stage.engine}, not fused",
            ways[index] if index < len(ways) else "-",
            f"{stage.ms_per_step:.1f}" if stage.ms_per_step else "-",
        )
        for index, stage in enumerate(pipeline.stages)
    ]
