from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.gateway.answers import error_status
from autellix_controller.gateway.stream import StreamWatch
from support.fake_engine import DONE, event

WHOLE = event("a") + event('say "finish_reason":"abort" loudly') + event(finish_reason="stop") + DONE
ABORTED = event("a") + event(finish_reason="abort")


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a != b]


@given(st.lists(st.integers(min_value=0), max_size=8))
def test_a_whole_stream_passes_unchanged_however_it_is_cut(places: list[int]) -> None:
    watch = StreamWatch(needs_done=True)
    assert b"".join(watch.passes(chunk) for chunk in cut(WHOLE, places)) == WHOLE
    assert watch.complete
    assert not watch.aborted


@given(st.lists(st.integers(min_value=0), max_size=8))
def test_nothing_passes_after_the_event_that_says_abort(places: list[int]) -> None:
    watch = StreamWatch(needs_done=True)
    passed = b""
    for chunk in cut(ABORTED + DONE + event("more"), places):
        if watch.ended:
            break
        passed += watch.passes(chunk)
    assert watch.aborted
    assert watch.ended
    assert passed == ABORTED
    assert not watch.complete


def test_a_stream_without_done_is_not_complete() -> None:
    watch = StreamWatch(needs_done=True)
    watch.passes(event("a"))
    assert not watch.complete


def test_a_done_that_the_model_wrote_is_no_end() -> None:
    watch = StreamWatch(needs_done=True)
    watch.passes(event("data: [DONE]"))
    assert not watch.complete


RESPONSE = b'event: response.created\ndata: {"type":"response.created"}\n\n'


@given(
    st.sampled_from(
        [
            b"event: response.completed\ndata: {}\n\n",
            b"event: response.incomplete\r\ndata: {}\r\n\r\n",
            b'data: {"response":{},"type": "response.failed"}\n\n',
            b'event: response.completed\ndata: {"response":{"tools":[{"status":"cancelled"}]}}\n\n',
        ]
    ),
    st.lists(st.integers(min_value=0), max_size=8),
)
def test_a_response_ends_with_an_event_that_says_so(end: bytes, places: list[int]) -> None:
    watch = StreamWatch(needs_done=False)
    watch.passes(RESPONSE)
    watch.passes(b'data: {"type":"response.output_text.delta","delta":"event: response.completed"}\n\n')
    assert not watch.complete
    assert b"".join(watch.passes(chunk) for chunk in cut(end + b"\n" * 100, places)) == end + b"\n" * 100
    assert watch.complete


def test_abort_is_seen_with_any_spacing() -> None:
    watch = StreamWatch(needs_done=True)
    watch.passes(b'data: {"finish_reason" : "abort"}\r\n\r\n')
    assert watch.ended


FAILED = b'data: {"error": {"message": "lost", "type": "InternalServerError", "param": null, "code": 500}}\n\n'


@given(st.sampled_from([b"", event("a"), event('data: {"error": {}}')]), st.lists(st.integers(min_value=0), max_size=8))
def test_nothing_passes_after_an_error_event(before: bytes, places: list[int]) -> None:
    watch = StreamWatch(needs_done=True)
    passed = b""
    for chunk in cut(before + FAILED + DONE, places):
        if watch.ended:
            break
        passed += watch.passes(chunk)
    assert passed == before + FAILED
    assert (watch.failed, watch.ended, watch.complete, watch.aborted) == (True, True, False, False)
    assert error_status(watch.last_data) == 500


def test_an_error_is_the_first_event_only_if_nothing_came_before_it() -> None:
    for before, first in ((b"", True), (event("a"), False), (b": ping\n\n", False)):
        watch = StreamWatch(needs_done=True)
        watch.passes(before + FAILED)
        assert watch.failed
        assert watch.failed_at_once is first


@pytest.mark.parametrize(
    "written",
    [
        event('data: {"error": {"message": 1}}'),
        b'data: {"choices":[],"error":null}\n\n',
        b'data: {"error": null, "choices":[]}\n\n',
        b'data: {"x":{"error":{}}}\n\n',
    ],
)
def test_what_only_looks_like_an_error_is_none(written: bytes) -> None:
    watch = StreamWatch(needs_done=True)
    assert watch.passes(written + DONE) == written + DONE
    assert watch.complete


@given(
    st.sampled_from(
        [
            b'event: error\r\ndata: {"type":"error","code":"server_error"}\r\n\r\n',
            b'event: error\ndata: {"type":"error","code":"server_error"}\n\n',
            b'data: {"type": "error", "code": "server_error"}\n\n',
            b'data: {"error":{"code":500}}\n\n',
        ]
    ),
    st.lists(st.integers(min_value=0), max_size=8),
)
def test_an_error_ends_a_response(end: bytes, places: list[int]) -> None:
    watch = StreamWatch(needs_done=False)
    watch.passes(RESPONSE)
    passed = b""
    for chunk in cut(end + b"event: more\n\n", places):
        if watch.ended:
            break
        passed += watch.passes(chunk)
    assert passed == end
    assert watch.failed
    assert error_status(watch.last_data) == 500


@given(st.lists(st.integers(min_value=0), max_size=8))
def test_a_response_that_says_cancelled_was_aborted(places: list[int]) -> None:
    end = b'event: response.completed\ndata: {"response":{"output":[],"status":"cancelled"},"type":"x"}\n\n'
    watch = StreamWatch(needs_done=False)
    watch.passes(RESPONSE)
    assert b"".join(watch.passes(chunk) for chunk in cut(end, places)) == end
    assert (watch.aborted, watch.ended, watch.complete) == (True, True, False)


def test_what_a_client_had_repeated_in_a_response_aborts_nothing() -> None:
    """Its tools stand in the response as it sent them."""
    watch = StreamWatch(needs_done=False)
    watch.passes(b'event: response.created\ndata: {"response":{"tools":[{"finish_reason":"abort"}]}}\n\n')
    watch.passes(b'event: response.completed\ndata: {"response":{"status":"completed"}}\n\n')
    assert watch.complete


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b'{"error":{"code":400}}', 400),
        (b'{"error":{"code":503}}', 503),
        (b'{"error":{"code":200}}', 0),
        (b'{"error":{"type":"server_error","code":null}}', 500),
        (b'{"error":"odd"}', 0),
        (b'{"error"', 0),
        (b"[]", 0),
    ],
)
def test_an_error_within_a_stream_stands_for_a_status(said: bytes, status: int) -> None:
    assert error_status(said) == status
