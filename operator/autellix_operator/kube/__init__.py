"""Access to the Kubernetes API: a small protocol, and its implementation over the official client."""
