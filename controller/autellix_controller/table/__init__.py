"""The process table: what every replica knows about live programs."""

from autellix_controller.table.factory import InvalidTableUrl, open_table

__all__ = ["InvalidTableUrl", "open_table"]
