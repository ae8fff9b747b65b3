"""Eight prompts that share nothing but their length class, so that no cache can help."""

from __future__ import annotations

PROMPTS = [
    "What is the capital of France, and what is it known for?",
    "Explain in simple words why the sky is blue during the day.",
    "Write a short story about a lighthouse keeper and a lost whale.",
    "List five practical ways to save electricity in a small office.",
    "How does a bicycle stay upright while it is moving forward?",
    "Describe the taste of a ripe mango to someone who never had one.",
    "What should a beginner know before planting tomatoes in spring?",
    "Summarise how a bill becomes a law in a parliamentary democracy.",
]
