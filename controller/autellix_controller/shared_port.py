"""A port that several controller processes of one machine share: the kernel spreads connections over them.

``SO_REUSEPORT`` on Linux gives each connection to one of the listening sockets for good, by a hash of both ends'
addresses. It knows nothing of readiness, so a process joins the port when it is ready (a socket that is bound and does
not listen gets nothing), and leaves it before it stops. Just closing the socket would reset the connections that the
kernel has made and the process has not accepted yet.
"""

import ctypes
import socket
import struct
from typing import Final

#: Time for handshakes that had begun to end, and for their connections to be accepted. A client that comes in it tries
#: again after a second by itself, and then meets another process.
HANDSHAKE_SECONDS: Final = 0.25

_SO_ATTACH_FILTER: Final = getattr(socket, "SO_ATTACH_FILTER", 26)
_FLAGS_OFFSET: Final = 13
"""Of the TCP header, with which a packet begins for such a filter."""
_SYN, _ACK = 0x02, 0x10
#: Classic BPF: drops the first packet of a handshake (SYN without ACK), keeps everything else. Each line is an
#: instruction: code, steps to jump if true and if false, operand (linux/filter.h).
_NO_NEWCOMERS: Final = (
    (0x30, 0, 0, _FLAGS_OFFSET),  # load the byte of flags
    (0x54, 0, 0, _SYN | _ACK),  # and it with these two
    (0x15, 0, 1, _SYN),  # is it SYN alone?
    (0x06, 0, 0, 0),  # then keep nothing
    (0x06, 0, 0, 0xFFFFFFFF),  # else all of the packet
)


def bind(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    """A socket on a port that others may share; it does not listen yet. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:  # as for a port that is not shared
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def turn_newcomers_away(sock: socket.socket) -> None:
    """From now on a listening socket completes the handshakes that have begun and begins none. Raises OSError."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in _NO_NEWCOMERS))
    program = struct.pack("HP", len(_NO_NEWCOMERS), ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
