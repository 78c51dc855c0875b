"""What stands for contents that pods read at their start only: when it changes, the pods are made anew."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Digests:
    """Short digests. They tell that contents changed, and nothing about the contents."""

    environment: str = ""
    """Of the Secrets and ConfigMaps behind the engines' environment; empty if there are none."""
    table_authority: str = ""
    """Of the authority that etcd's members trust; empty if etcd runs elsewhere. Certificates they read anew as they
    go."""
    table_client: str = ""
    """Of what controllers show to etcd and trust; empty if that is nothing."""
