"""HTTP: the OpenAI-compatible routes and the admin's routes."""
