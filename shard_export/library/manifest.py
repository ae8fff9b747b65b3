"""The manifest: what a layer library holds, as plain data. Written last, so its presence means complete.

A library folder looks like this; every consumer refuses what does not match::

    manifest.json
    units/000.xml 000.bin ...  embed.xml embed.bin  head.xml head.bin  rope-<kind>.xml .bin
    tokenizer/                 tokenizer.json, tokenizer_config.json, chat_template.jinja ...

Unit ports (all OpenVINO IR, batch B, n new tokens, T = P + n keys, hidden size H)::

    layer   hidden [B,n,H] f32, mask [B,1,n,T] additive f32, cos/sin [B,n,R] f32,
            past_k [B,Hkv,P,Dk], past_v [B,Hkv,P,Dv]
            -> out [B,n,H], present_k [B,Hkv,T,Dk], present_v [B,Hkv,T,Dv]
    embed   input_ids [B,n] i64 -> hidden [B,n,H]      (embedding scale included)
    head    hidden [B,n,H] -> logits [B,n,V]           (final norm, lm_head, logit scale and softcap included)
    rope    position_ids [B,n] i64 -> cos, sin [B,n,R]
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"

UnitKind = Literal["layer", "embed", "head", "rope"]
AttentionKind = Literal["full", "sliding"]


class FileRecord(msgspec.Struct, frozen=True):
    """One file of the library: `path` is relative to its folder, with forward slashes."""

    path: str
    size_bytes: int
    sha256: str


class Compression(msgspec.Struct, frozen=True):
    """How a unit's weights are stored, as really applied.

    `mode` is `int4_sym`, `int4_asym`, `int4_gptq`, `int8_asym`, `gguf`, several of them joined by `+`, or `none`.
    `formats` maps each compressed matrix to its own (a GGUF block format like `Q4_K` when its codes were kept),
    `group_sizes` to its group size (-1: one scale per output channel). `bits_per_weight` counts scales and zero
    points too. `int8_share` is the share of the compressed weights that has eight bits.
    """

    mode: str
    bits_per_weight: float
    group_sizes: dict[str, int] = {}
    formats: dict[str, str] = {}
    int8_share: float = 0.0


class Attention(msgspec.Struct, frozen=True):
    """What a layer's cache and mask look like; `window_tokens` is 0 for full attention."""

    kind: AttentionKind
    kv_heads: int
    k_head_size: int
    v_head_size: int
    rope: str
    window_tokens: int = 0


class Parity(msgspec.Struct, frozen=True):
    """Relative errors against transformers: before compression (the gate) and after it (for the record)."""

    fp32_error: float
    compressed_error: float


class Unit(msgspec.Struct, frozen=True):
    """One unit: a decoder layer (`index` >= 0), `embed`, `head` or a `rope-<kind>` (`index` -1)."""

    name: str
    kind: UnitKind
    index: int
    xml: FileRecord
    bin: FileRecord
    compression: Compression
    attention: Attention | None = None
    parity: Parity | None = None

    @property
    def size_bytes(self) -> int:
        return self.xml.size_bytes + self.bin.size_bytes


class Tokens(msgspec.Struct, frozen=True):
    """What the tokenizer needs: files, special ids, and the chat template's path (empty: none).

    `texts_compared` conversations and texts became the same tokens as in transformers when the library was built.
    """

    files: list[FileRecord]
    eos_ids: list[int]
    bos_id: int | None
    pad_id: int | None
    adds_bos: bool
    chat_template_path: str
    texts_compared: int = 0


class EndToEnd(msgspec.Struct, frozen=True):
    """The units in a row against transformers on real text: `positions` compared, none above `highest_position`."""

    positions: int
    top1_agreement: float
    mean_kl: float
    fp32_error: float
    highest_position: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """Everything a consumer must know before it touches a weight."""

    format_version: int
    model_id: str
    revision: str
    family: str
    layer_count: int
    hidden_size: int
    vocab_size: int
    context_tokens: int
    units: list[Unit]
    tokens: Tokens
    versions: dict[str, str]
    end_to_end: EndToEnd | None = None
    role: Literal["target", "draft"] = "target"

    def unit(self, name: str) -> Unit:
        """Find a unit by name; raises KeyError."""
        for unit in self.units:
            if unit.name == name:
                return unit
        raise KeyError(name)

    def layer(self, index: int) -> Unit:
        """Find a decoder layer; raises KeyError."""
        for unit in self.units:
            if unit.kind == "layer" and unit.index == index:
                return unit
        raise KeyError(index)

    def units_of_range(self, first: int, last: int) -> list[Unit]:
        """List the units a stage with layers `first <= i < last` needs: its layers, their ropes, embed and head."""
        layers = [self.layer(index) for index in range(first, last)]
        ropes = {layer.attention.rope for layer in layers if layer.attention is not None and layer.attention.rope}
        wanted = [unit for unit in self.units if unit.kind == "rope" and unit.name in ropes]
        wanted += layers
        if first == 0:
            wanted.append(self.unit("embed"))
        if last == self.layer_count:
            wanted.append(self.unit("head"))
        return wanted

    def files(self) -> list[FileRecord]:
        """List every file of the library except the manifest itself."""
        return [record for unit in self.units for record in (unit.xml, unit.bin)] + list(self.tokens.files)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the canonical bytes: the same manifest always gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1) + b"\n"


def library_digest(manifest: Manifest) -> str:
    """Name a library by content: the SHA-256 of its canonical manifest, in hex."""
    return hashlib.sha256(encode_manifest(manifest)).hexdigest()
