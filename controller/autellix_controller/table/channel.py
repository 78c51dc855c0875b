"""Connections to etcd: our own gRPC channels under etcd3aio's services, since its client refuses DNS names."""

from collections.abc import Sequence
from typing import Final

import grpc
from etcd3aio._protobuf import LeaseStub, WatchStub
from etcd3aio.kv import KVService
from etcd3aio.lease import LeaseService

_OPTIONS: Final = (
    # A member that vanished without a word is noticed within 15 s; etcd takes more than one ping in 5 s for an abuse.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Also how long one attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    # A pod that was replaced has another address: the default would look it up every 30 s only.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.service_config_disable_resolution", 1),
    # A list page or the events of one large transaction may pass the default of 4 MiB.
    ("grpc.max_receive_message_length", -1),
    ("grpc.lb_policy_name", "round_robin"),
    # A channel of ours is a connection of ours: closing one table never touches another's.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class Member:
    """One endpoint with its channel and services. Retries are ours to make: a service's own would repeat
    transactions."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.channel = grpc.aio.insecure_channel(f"dns:///{endpoint}", options=_OPTIONS)
        self.kv = KVService(self.channel, max_attempts=1)
        self.lease = LeaseService(self.channel, max_attempts=1)
        self.keep_alive = LeaseStub(self.channel)
        self.watch = WatchStub(self.channel)


class Members:
    """The endpoints of one etcd cluster; one is in use, the next takes over when it fails.

    Made inside a running event loop, to which the channels belong.
    """

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._members = [Member(endpoint) for endpoint in endpoints]
        self._current = 0

    @property
    def current(self) -> Member:
        """The member to talk to now."""
        return self._members[self._current]

    def failed(self, member: Member) -> None:
        """Moves on to the next endpoint, unless another caller already has."""
        if member is self.current:
            self._current = (self._current + 1) % len(self._members)

    async def close(self) -> None:
        """Ends all calls and connections."""
        for member in self._members:
            await member.channel.close()
