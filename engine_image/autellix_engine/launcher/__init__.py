"""Starts vLLM as an engine of the system: checks the settings, hands them over, becomes ``vllm serve``."""
