"""What other packages say while we work: kept off the terminal, and handed on to whoever wants to know."""

from __future__ import annotations

import contextlib
import logging
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PACKAGES = ("transformers", "torch", "nncf", "openvino")


class _Collector(logging.Handler):
    def __init__(self, hear: Callable[[str, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        self._hear(record.name, record.getMessage())


@contextlib.contextmanager
def heard(tell: Callable[[str, str], None]) -> Iterator[None]:
    """Hand warnings of torch, transformers and OpenVINO to `tell(package, sentence)`, each sentence once.

    They are advice to programmers and would frighten a user; real faults raise. Changes the loggers and filters of the
    whole process for as long as it lasts.
    """
    said: set[str] = set()

    def hear(name: str, message: str) -> None:
        sentence = " ".join(message.split())
        if sentence not in said:
            said.add(sentence)
            tell(name.partition(".")[0], sentence)

    collector = _Collector(hear)
    loggers = [logging.getLogger(name) for name in _PACKAGES]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, category, *_rest: hear(_package_of(category), str(message))
        for logger in loggers:
            logger.handlers, logger.propagate = [collector], False
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
                logger.handlers, logger.propagate = handlers, propagate
                logger.setLevel(level)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let nobody hear it: tracing makes torch say of every line that its value was taken for a constant."""
    with heard(lambda _package, _sentence: None):
        yield


def _package_of(category: type[Warning]) -> str:
    return "python" if category.__module__ == "builtins" else category.__module__
