"""The engine: vLLM with a scheduler that schedules programs."""
