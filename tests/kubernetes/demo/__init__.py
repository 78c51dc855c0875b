"""The demo: from nothing to agent traffic on a throw-away Kubernetes, the stock order beside PLAS."""
