"""OpenAI's own SDK before the API, which serves the `model` of the test's own file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest

from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, serving
from tests.support.patience import PATIENCE_S


@pytest.fixture
async def url(model: ScriptedModel) -> AsyncIterator[str]:
    async with serving(chat_app(model)) as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=CHAT_KEY, max_retries=0, timeout=PATIENCE_S) as client:
        yield client
