import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.errors import ApiError
from autellix_controller.gateway.body import check_headers, parse
from autellix_wire.context import ProgramContext

CONTEXT = ProgramContext(program="p.1", call="c", replica="r", service_ms=12.5)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
unknown_names = st.text(max_size=8).filter(
    lambda name: (
        name
        not in {
            "model",
            "priority",
            "session_id",
            "request_id",
            "vllm_xargs",
            "kv_transfer_params",
            "ec_transfer_params",
        }
    )
)


def test_values_keep_the_bytes_that_the_client_sent() -> None:
    sent = (
        b'{ "model":"m", "temperature": 1.50, "big": 123456789012345678901234567890,'
        b' "u":"\\u00e9\xc3\xa9", "o":{ "a" : 1e0 } }'
    )
    assert parse(sent).with_context(None) == (
        b'{"model":"m","temperature":1.50,"big":123456789012345678901234567890,"u":"\\u00e9\xc3\xa9","o":{ "a" : 1e0 }}'
    )


@given(st.dictionaries(unknown_names, json_values, max_size=4))
def test_unknown_fields_pass_unchanged(fields: dict[str, object]) -> None:
    sent = json.dumps({"model": "m", **fields}).encode()
    assert json.loads(parse(sent).with_context(CONTEXT)) == {"model": "m", **fields, "vllm_xargs": CONTEXT.to_xargs()}


@pytest.mark.parametrize("spelling", [b'"priority"', b'"pri\\u006frity"'])
def test_priority_session_and_request_id_are_dropped_however_they_are_spelt(spelling: bytes) -> None:
    sent = b'{"model":"m",' + spelling + b':-5,"session_id":"x","priority":7,"request_id":"resp_of_another"}'
    assert json.loads(parse(sent).with_context(None)) == {"model": "m"}


def test_program_fields_of_a_client_are_overwritten_and_other_extensions_kept() -> None:
    sent = {
        "model": "m",
        "vllm_xargs": {
            "autellix_program": "stolen",
            "autellix_future": 1,
            "kv_transfer_params": "x",
            "session_id": "y",
            "priority": 1,
            "mine": [1.50, "a"],
        },
    }
    body = json.loads(parse(json.dumps(sent).encode()).with_context(CONTEXT))
    assert body["vllm_xargs"] == {"mine": [1.5, "a"], **CONTEXT.to_xargs()}
    assert json.loads(parse(json.dumps(sent).encode()).with_context(None))["vllm_xargs"] == {"mine": [1.5, "a"]}


def test_an_engine_without_context_gets_no_empty_extension() -> None:
    sent = b'{"model":"m","vllm_xargs":{"autellix_program":"p"}}'
    assert parse(sent).with_context(None) == b'{"model":"m"}'


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a":1}x', "not valid JSON"),
        (b'{"a":NaN}', "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b'{"a":"\xff"}', "not valid UTF-8"),
        (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (b'{"model":5}', "model must be a string"),
        (b'{"model":"m","vllm_xargs":[]}', "vllm_xargs must be an object"),
        (b'{"model":"m","kv_transfer_params":{"a":1}}', "kv_transfer_params may not be set"),
    ],
)
def test_a_bad_body_is_refused_with_its_reason(sent: bytes, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        parse(sent)
    assert caught.value.status == 400


@given(st.binary(max_size=64))
def test_no_bytes_make_parsing_fail_otherwise(sent: bytes) -> None:
    with contextlib.suppress(ApiError):
        msgspec.json.decode(parse(sent).with_context(CONTEXT))


def test_null_transfer_parameters_are_harmless() -> None:
    parse(b'{"model":"m","kv_transfer_params":null}')


def test_the_prompt_is_what_the_model_reads() -> None:
    assert parse(b'{"messages":[1, 2],"max_tokens":5}').prompt == b"[1, 2]"
    assert parse(b'{"prompt":"abc","tools":[3]}').prompt == b'"abc" [3]'
    assert parse(b"{}").prompt == b""


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        (b"application/json", None),
        (b"Application/JSON; charset=UTF-8", b"identity"),
        (None, None),
    ],
)
def test_json_is_accepted(kind: bytes | None, encoding: bytes | None) -> None:
    check_headers(kind, encoding)


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        (b"text/plain", None),
        (b"application/x-www-form-urlencoded", None),
        (b"application/json; charset=latin-1", None),
        (b"application/json", b"gzip"),
    ],
)
def test_other_media_are_refused(kind: bytes, encoding: bytes | None) -> None:
    with pytest.raises(ApiError) as caught:
        check_headers(kind, encoding)
    assert caught.value.status == 415


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (b'{"model":"m","messages":[1],"tools":[2],"stream":true}', b'{"model":"m","messages":[1],"tools":[2]}'),
        (b'{"model":"m","prompt":"\\u00e9","max_tokens":4}', b'{"model":"m","prompt":"\\u00e9"}'),
        (b'{"model":"m","input":"one"}', None),
    ],
)
def test_a_prompt_is_sent_to_the_tokenizer_as_the_client_wrote_it(sent: bytes, wanted: bytes | None) -> None:
    assert parse(sent).tokenize_request() == wanted
