"""The engine's own HTTP API, loaded by vLLM as an endpoint plugin."""
