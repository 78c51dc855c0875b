"""Connections to etcd: our own gRPC channels under etcd3aio's services, since its client refuses DNS names."""

import logging
from collections.abc import Sequence
from typing import Final

import grpc
from etcd3aio._protobuf import LeaseStub, WatchStub
from etcd3aio.auth import AuthService
from etcd3aio.kv import KVService
from etcd3aio.lease import LeaseService

from autellix_controller.background import SingleFlight
from autellix_controller.table.access import Credentials, EtcdAccess
from autellix_controller.table.urls import InvalidTable

_log = logging.getLogger(__name__)

_NO_ACCESS: Final = EtcdAccess()

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

    def __init__(self, endpoint: str, credentials: Credentials, *, tls: bool) -> None:
        self.endpoint = endpoint
        target = f"dns:///{endpoint}"
        if tls:
            shown = grpc.ssl_channel_credentials(credentials.ca, credentials.key, credentials.certificate)
            self.channel = grpc.aio.secure_channel(target, shown, options=_OPTIONS)
        else:
            self.channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self.kv = KVService(self.channel, max_attempts=1)
        self.lease = LeaseService(self.channel, max_attempts=1)
        self.keep_alive = LeaseStub(self.channel)
        self.watch = WatchStub(self.channel)
        self._auth = AuthService(self.channel, max_attempts=1)
        self._credentials = credentials
        self._token = ""
        self._signing_in: SingleFlight[str, None] = SingleFlight()

    @property
    def has_user(self) -> bool:
        """Calls are made in the name of a user, who has to sign in."""
        return bool(self._credentials.user)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What calls on the bare stubs have to carry."""
        return (("token", self._token),) if self._token else ()

    async def signed_in(self, timeout: float, *, instead_of: str | None = None) -> str:
        """Makes sure that calls carry a token, if there is a user, and returns it; ``instead_of`` is one that etcd
        does not take any more. Callers that come at once sign in once. Raises what calls raise."""
        if self.has_user and self._token in ("", instead_of):
            await self._signing_in.run(self._token, lambda: self._sign_in(timeout))
        return self._token

    async def _sign_in(self, timeout: float) -> None:
        reply = await self._auth.authenticate(self._credentials.user, self._credentials.password, timeout=timeout)
        self._token = reply.token
        self.kv.set_token(self._token)
        self.lease.set_token(self._token)


class Members:
    """The endpoints of one etcd cluster; one is in use, the next takes over when it fails.

    Made inside a running event loop, to which the channels belong.
    """

    def __init__(self, endpoints: Sequence[str], *, tls: bool = False, access: EtcdAccess = _NO_ACCESS) -> None:
        """Raises InvalidTable if the credentials cannot be used."""
        self._endpoints, self._tls, self._access = endpoints, tls, access
        self._credentials = access.read()
        self._members = self._connected()
        self._retired: list[Member] = []
        self._current = 0

    def _connected(self) -> list[Member]:
        return [Member(endpoint, self._credentials, tls=self._tls) for endpoint in self._endpoints]

    @property
    def current(self) -> Member:
        """The member to talk to now."""
        return self._members[self._current]

    def failed(self, member: Member) -> None:
        """Moves on to the next endpoint, unless another caller already has. Credentials that were replaced since are
        used from now on: an expired certificate or a former password may be what failed."""
        if member is self.current:
            self._current = (self._current + 1) % len(self._members)
            self._renew()

    def _renew(self) -> None:
        try:
            credentials = self._access.read()
        except InvalidTable as error:
            _log.warning("credentials for etcd stay as they were: %s", error)
            return
        if credentials != self._credentials:
            _log.info("credentials for etcd were replaced")
            self._credentials = credentials
            # Not closed yet: that would cancel whoever waits for an answer of theirs.
            self._retired += self._members
            self._members = self._connected()

    async def close(self) -> None:
        """Ends all calls and connections."""
        for member in (*self._members, *self._retired):
            await member.channel.close()
