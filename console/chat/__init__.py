"""The chat window: a client of the OpenAI-compatible API."""
