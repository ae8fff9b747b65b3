"""A whole library as one folder that `openvino_genai.LLMPipeline` loads: useful by itself, and our fair baseline."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import openvino as ov

from shard_export.build.advice import quiet
from shard_export.build.tokenizer import FOLDER
from shard_export.library.errors import LibraryExists
from shard_export.library.graph import assemble
from shard_export.library.minima import quantizes_activations
from shard_export.library.store import disk_errors, verify_library, work_folder_of

if TYPE_CHECKING:
    from pathlib import Path

    from shard_export.library.manifest import Manifest

MODEL_NAME = "openvino_model.xml"


def write_assembled(library: Path, out: Path) -> None:
    """Verify `library` and write it as an openvino_genai folder to `out`, which must be free.

    Raises LibraryError for a bad library or a taken folder, DiskFull, ExportError.
    """
    manifest = verify_library(library)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise LibraryExists(f"{out} is not empty; choose another folder for the assembled model.")
    work = work_folder_of(out)
    try:
        with disk_errors(out), quiet():
            if work.exists():
                shutil.rmtree(work)
            work.mkdir(parents=True)
            _write_model(library, manifest, work)
            _write_tokenizer(library, work)
            _write_configs(manifest, work)
            if out.exists():
                out.rmdir()
            work.replace(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_model(library: Path, manifest: Manifest, work: Path) -> None:
    # The form our own stages would load on this PC: as a baseline it must not lose what they gain.
    split = quantizes_activations(ov.Core(), "CPU", {})
    model = assemble(library, manifest, 0, manifest.layer_count, split=split)
    ov.save_model(model, str(work / MODEL_NAME), compress_to_fp16=False)


def _write_tokenizer(library: Path, work: Path) -> None:
    from openvino_tokenizers import convert_tokenizer
    from transformers import AutoTokenizer

    for path in (library / FOLDER).iterdir():
        shutil.copyfile(path, work / path.name)
    tokenizer = AutoTokenizer.from_pretrained(str(library / FOLDER), local_files_only=True)
    encoder, decoder = convert_tokenizer(tokenizer, with_detokenizer=True)
    ov.save_model(encoder, str(work / "openvino_tokenizer.xml"))
    ov.save_model(decoder, str(work / "openvino_detokenizer.xml"))


def _write_configs(manifest: Manifest, work: Path) -> None:
    tokens = manifest.tokens
    special = {"bos_token_id": tokens.bos_id, "eos_token_id": tokens.eos_ids, "pad_token_id": tokens.pad_id}
    config = {
        "model_type": manifest.family,
        "hidden_size": manifest.hidden_size,
        "num_hidden_layers": manifest.layer_count,
        "vocab_size": manifest.vocab_size,
        "max_position_embeddings": manifest.context_tokens,
        **special,
    }
    for name, content in (("config.json", config), ("generation_config.json", special)):
        kept = {key: value for key, value in content.items() if value is not None}
        (work / name).write_text(json.dumps(kept, indent=2) + "\n", "utf-8")
