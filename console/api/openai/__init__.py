"""The OpenAI-compatible routes under /v1."""
