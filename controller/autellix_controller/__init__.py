"""The controller: OpenAI-compatible gateway, sessions, process table and routing."""
