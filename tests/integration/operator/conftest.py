from support.cluster_fixtures import admin, bench

__all__ = ["admin", "bench"]
