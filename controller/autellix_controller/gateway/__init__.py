"""The gateway: the OpenAI-compatible hot path between clients and engines."""
