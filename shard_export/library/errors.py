"""Errors of the exporter and of everybody who reads a layer library.

ExportError
 ├─ CheckpointError          the source cannot be read as a model
 │   ├─ UnknownFamily        no decoder layers were found that we can trace
 │   ├─ TensorMismatch       a tensor is missing, left over or of the wrong shape
 │   └─ CheckpointTorn       a file is missing, truncated or not what its name says
 ├─ CompressionError         the weights cannot be compressed as asked
 ├─ ParityFailed             a unit or the whole library does not compute what transformers computes
 │   └─ TokensDiffer         a conversation becomes other tokens than in transformers
 ├─ DiskFull                 no room left for the library
 ├─ MemoryShort              too little memory to build it
 ├─ BuildCancelled           stopped by the caller
 ├─ PromptRefused            the chat template cannot render this conversation
 └─ LibraryError             a layer library cannot be used
     ├─ LibraryIncomplete    a file of the manifest is missing
     ├─ LibraryDamaged       a file does not match its SHA-256, or the manifest cannot be parsed
     ├─ LibraryTooNew        written by a newer exporter
     ├─ LibraryExists        the target folder already holds a library
     ├─ LibraryBusy          another build is writing it
     └─ ChatUnusable         its tokenizer or chat template cannot be loaded
"""

from __future__ import annotations


class ExportError(Exception):
    """Base of the package: `str(error)` is one sentence saying what happened and what to do."""

    exit_code = 1


class CheckpointError(ExportError):
    """The source cannot be read as a model."""

    exit_code = 3


class UnknownFamily(CheckpointError):
    """No decoder layers were found that can be traced."""


class TensorMismatch(CheckpointError):
    """A tensor is missing, left over or of the wrong shape."""


class CheckpointTorn(CheckpointError):
    """A file of the source is missing, truncated or not what its name says."""


class CompressionError(ExportError):
    """The weights cannot be compressed as asked."""

    exit_code = 4


class ParityFailed(ExportError):
    """A unit, or the whole library, does not compute what transformers computes."""

    exit_code = 5


class TokensDiffer(ParityFailed):
    """A conversation becomes other tokens than in transformers."""


class DiskFull(ExportError):
    """No room left for the library."""

    exit_code = 6


class MemoryShort(ExportError):
    """Too little memory to build the library."""

    exit_code = 6


class BuildCancelled(ExportError):
    """The caller stopped the build."""

    exit_code = 130


class PromptRefused(ExportError):
    """The chat template cannot render this conversation; another one may do."""


class LibraryError(ExportError):
    """A layer library cannot be used."""

    exit_code = 7


class LibraryIncomplete(LibraryError):
    """A file of the manifest is missing."""


class LibraryDamaged(LibraryError):
    """A file does not match its SHA-256, or the manifest cannot be parsed."""


class LibraryTooNew(LibraryError):
    """The library was written by a newer exporter."""


class LibraryExists(LibraryError):
    """The target folder already holds a library."""


class ChatUnusable(LibraryError):
    """The tokenizer or the chat template of a library cannot be loaded."""


class LibraryBusy(LibraryError):
    """Another build is writing the library."""
