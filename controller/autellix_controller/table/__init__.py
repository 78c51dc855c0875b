"""The process table: what every replica knows about live programs."""

from autellix_controller.table.access import EtcdAccess
from autellix_controller.table.factory import open_table
from autellix_controller.table.reader import read_programs
from autellix_controller.table.timings import Timings
from autellix_controller.table.urls import InvalidTable

__all__ = ["EtcdAccess", "InvalidTable", "Timings", "open_table", "read_programs"]
