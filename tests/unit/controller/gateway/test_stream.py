from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

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
            b'event: error\ndata: {"type":"error"}\n\n',
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
