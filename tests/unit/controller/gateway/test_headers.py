import pytest

from autellix_controller.gateway.headers import to_client, to_engine


def test_unknown_headers_pass_to_the_engine() -> None:
    passed = to_engine([(b"x-custom", b"\xc3\xa9t\xc3\xa9"), (b"traceparent", b"00-1")], request_id="r")
    assert (b"x-custom", b"\xc3\xa9t\xc3\xa9") in passed
    assert (b"traceparent", b"00-1") in passed


@pytest.mark.parametrize(
    "name",
    [
        b"connection",
        b"keep-alive",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"host",
        b"content-length",
        b"x-session-id",
        b"x-vllm-priority",
        b"x-data-parallel-rank",
        b"x-autellix-session",
        b"x-autellix-thread",
        b"x-only-this-hop",
    ],
)
def test_what_belongs_to_this_hop_or_to_us_does_not_reach_the_engine(name: bytes) -> None:
    sent = [(name, b"1"), (b"connection", b"close, X-Only-This-Hop")]
    assert name not in dict(to_engine(sent, request_id="r"))


def test_the_engine_never_gets_the_clients_key() -> None:
    assert b"authorization" not in dict(to_engine([(b"authorization", b"Bearer client")], request_id="r"))


def test_the_bytes_of_a_value_are_not_looked_at() -> None:
    assert (b"x-a", b"\xff") in to_engine([(b"x-a", b"\xff")], request_id="r")


def test_an_engine_cannot_speak_for_us() -> None:
    passed = to_client(
        [
            (b"X-Autellix-Engine", b"other"),
            (b"X-Request-Id", b"other"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Content-Length", b"3"),
            (b"X-Custom", b"1"),
            (b"X-Split", b"1\r\nx-autellix-engine: forged"),
        ]
    )
    assert passed == [(b"x-custom", b"1")]
