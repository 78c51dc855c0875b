"""Open files, which connections are: how many there may be, and how it shows that there are too many."""

import errno
import logging
import resource
from typing import Final

from autellix_controller.logs import fields

log = logging.getLogger(__name__)

#: What an attempt to connect meets when this machine, not the other end, has run out: of files of the process or the
#: system, of memory for sockets, of ports of its own.
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
#: Beside those of calls: listening, etcd, probes and record streams of engines, logs, idle connections.
_OTHERS: Final = 1024


def is_exhaustion(error: BaseException) -> bool:
    """Whether an error of the system says that it has no room, and so nothing about whom we wanted to reach."""
    return isinstance(error, OSError) and error.errno in _EXHAUSTED


def raise_limit(calls: int) -> None:
    """Lets the process open as many files as it may at all, and warns if ``calls`` at once need more: each takes one
    connection from its client and one to its engine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:  # not every system takes the limit that it names
            log.warning("the limit of open files stays", extra=fields(limit=soft, reason=str(error)))
        else:
            soft = hard
    needed = 2 * calls + _OTHERS
    if soft != resource.RLIM_INFINITY and soft < needed:
        log.warning("the limit of open files is below what max_calls may need", extra=fields(limit=soft, needed=needed))
