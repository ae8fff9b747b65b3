"""What other packages say is kept off the terminal and handed on, once."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from shard_export.build.advice import heard, quiet

if TYPE_CHECKING:
    import pytest


def test_warnings_and_logs_are_handed_on_once(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[tuple[str, str]] = []
    logger = logging.getLogger("transformers.modeling_rope_utils")
    with heard(lambda package, sentence: said.append((package, sentence))):
        for _ in range(2):
            logger.warning("set the `factor`\n field of %s", "rope_parameters")
        logger.info("nobody needs this")
        warnings.warn("a dtype changed", stacklevel=1)
        with quiet():
            logger.error("not while tracing")
        logging.getLogger("openvino").error("after it again")
    assert said == [
        ("transformers", "set the `factor` field of rope_parameters"),
        ("python", "a dtype changed"),
        ("openvino", "after it again"),
    ]
    assert capfd.readouterr() == ("", "")


def test_the_loggers_are_as_before_afterwards() -> None:
    logger = logging.getLogger("transformers")
    before = list(logger.handlers), logger.propagate, logger.level
    with quiet():
        assert not logger.propagate
    assert (list(logger.handlers), logger.propagate, logger.level) == before
