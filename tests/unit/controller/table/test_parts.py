"""The small parts of the table: entries, layout, URLs, index, running calls, contact."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_controller.table import InvalidTable, open_table, read_programs
from autellix_controller.table.activity import RunningCalls
from autellix_controller.table.contact import Contact
from autellix_controller.table.entry import (
    SCHEMA_VERSION,
    ProgramEntry,
    belongs,
    merge,
    program_id,
    split_engine_program,
)
from autellix_controller.table.index import OwnerIndex
from autellix_controller.table.layout import Layout, decode_program, encode_program
from autellix_controller.table.timings import Timings
from autellix_controller.table.urls import InEtcd, InFile, InMemory, parse_table_url

ENTRY = ProgramEntry(id=program_id("o", "s"), owner="o", session="s", created_ms=1234)


def test_the_same_session_of_another_owner_is_another_program() -> None:
    assert program_id("a", "bc") != program_id("ab", "c")


def test_engines_know_a_program_by_its_life() -> None:
    assert split_engine_program(ENTRY.engine_program) == (ENTRY.id, 1234)
    assert split_engine_program(ENTRY.id) == (ENTRY.id, None)
    assert split_engine_program(f"{ENTRY.id}.not-a-time") == (ENTRY.id, None)


def test_records_of_former_lives_do_not_belong() -> None:
    assert not belongs(ENTRY, 1233)
    assert belongs(ENTRY, 1234)
    assert belongs(ENTRY, 1235)
    assert belongs(ENTRY, None)


@settings(deadline=None)
@given(st.floats(0, 10), st.floats(0, 10))
def test_merging_figures_commutes(a: float, b: float) -> None:
    one, two = msgspec.structs.replace(ENTRY, path_ms=a), msgspec.structs.replace(ENTRY, path_ms=b)
    assert merge(one, two) == merge(two, one)


def test_layout_follows_the_contract() -> None:
    layout = Layout("/autellix/n/c")
    assert layout.program_key("p") == b"/autellix/n/c/programs/p"
    assert layout.replica_key("r") == b"/autellix/n/c/replicas/r"
    assert layout.program_of(b"/autellix/n/c/programs/p") == "p"
    assert layout.program_of(b"/autellix/n/c/replicas/p") is None
    assert layout.replica_of(b"/autellix/n/c/replicas/r") == "r"


def test_an_entry_is_json_with_a_schema_version() -> None:
    written = msgspec.json.decode(encode_program(ENTRY))
    assert written["schema"] == SCHEMA_VERSION
    assert written["id"] == ENTRY.id
    assert decode_program(ENTRY.id, encode_program(ENTRY)) == ENTRY


@pytest.mark.parametrize(
    "value",
    [
        encode_program(msgspec.structs.replace(ENTRY, schema=SCHEMA_VERSION + 1)),
        b'{"schema": 2, "id": {"now": "an object"}}',
        b"not json",
        b"\xff\xfe",
        b'{"id": "p"}',
        encode_program(msgspec.structs.replace(ENTRY, id="another")),
    ],
)
def test_what_is_damaged_or_newer_is_not_read(value: bytes) -> None:
    assert decode_program(ENTRY.id, value) is None


def test_fields_of_later_versions_of_the_same_schema_are_ignored() -> None:
    written = msgspec.json.decode(encode_program(ENTRY)) | {"colour": "blue"}
    assert decode_program(ENTRY.id, msgspec.json.encode(written)) == ENTRY


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("memory:", InMemory()),
        ("sqlite:///var/lib/autellix/table.db", InFile(Path("/var/lib/autellix/table.db"))),
        ("etcd://127.0.0.1:2379", InEtcd(("127.0.0.1:2379",))),
        ("etcd://a.svc:2379,b.svc:2380/", InEtcd(("a.svc:2379", "b.svc:2380"))),
        ("etcd://cluster-etcd.ns.svc.cluster.local.:2379", InEtcd(("cluster-etcd.ns.svc.cluster.local.:2379",))),
        ("etcd://[::1]:2379", InEtcd(("[::1]:2379",))),
        ("etcds://a:1,b:2", InEtcd(("a:1", "b:2"), tls=True)),
    ],
)
def test_table_urls(url: str, place: InMemory | InFile | InEtcd) -> None:
    assert parse_table_url(url) == place


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "redis://h:1",
        "etcd://",
        "etcd://host",
        "etcd://host:0",
        "etcd://host:65536",
        "etcd://a:1,,b:2",
        "etcd:host:1",
        "etcd://a:1/path",
        "sqlite:",
        "sqlite://",
        "sqlite://table.db",
        "sqlite:///a/",
    ],
)
def test_a_url_that_names_no_table_is_refused_with_what_is_allowed(url: str) -> None:
    with pytest.raises(InvalidTable, match="allowed are memory:, sqlite:///PATH and etcd://"):
        open_table(url, "/autellix/n/c", "r", 60)


def test_a_refused_url_does_not_repeat_a_password() -> None:
    with pytest.raises(InvalidTable) as caught:
        parse_table_url("etcd://root:hunter2@host:2379")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("prefix", "replica", "timeout", "named"),
    [
        ("autellix", "r", 60, "prefix"),
        ("/autellix/", "r", 60, "prefix"),
        ("/a/../b c", "r", 60, "prefix"),
        ("/a", "", 60, "replica"),
        ("/a", "r/s", 60, "replica"),
        ("/a", "r", 0, "session timeout"),
    ],
)
def test_wrong_arguments_are_named(prefix: str, replica: str, timeout: float, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        open_table("memory:", prefix, replica, timeout)


async def test_memory_cannot_be_read_from_outside() -> None:
    with pytest.raises(InvalidTable, match="only be read by the controller itself"):
        await read_programs("memory:", "/autellix/n/c")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("uvwxyz")), unique=True), st.integers(1, 4))
def test_the_index_pages_through_each_owners_ids_in_order(pairs: list[tuple[str, str]], limit: int) -> None:
    added, rebuilt = OwnerIndex(), OwnerIndex()
    for owner, program in pairs:
        added.add(owner, program)
    rebuilt.rebuild(pairs)
    for index in (added, rebuilt):
        assert len(index) == len(pairs)
        for owner in "ab":
            seen: list[str] = []
            while page := index.page(owner, seen[-1] if seen else "", limit):
                seen += page
            assert seen == sorted(program for listed, program in pairs if listed == owner)
    for owner, program in pairs:
        added.remove(owner, program)
    assert len(added) == 0
    assert list(added.page("a", "", 9)) == []


def test_a_program_runs_until_its_last_call_has_departed() -> None:
    running = RunningCalls()
    running.arrived("p")
    running.arrived("p")
    running.departed("p")
    assert "p" in running
    running.departed("p")
    assert "p" not in running
    assert list(running.programs()) == []
    with pytest.raises(ValueError, match="had not arrived"):
        running.departed("p")
    assert list(running.programs()) == []


def test_an_outage_costs_one_try_in_each_interval() -> None:
    now = 100.0
    contact = Contact(Timings(retry=1.0, call=1.0), clock=lambda: now)
    tries = []
    for now in (100.0, 100.5, 101.0, 101.9, 102.0):
        tries.append(contact.claim())
        if tries[-1]:
            contact.failed(f"refused at {now}")
    assert tries == [True, False, True, False, True]
    now = 112.4
    assert contact.detail == "writes to etcd fail for 12 s: refused at 102.0"
    contact.succeeded()
    assert contact.detail == ""


def test_while_one_tries_nobody_else_does() -> None:
    now = 100.0
    contact = Contact(Timings(retry=1.0, call=1.0), clock=lambda: now)
    assert [contact.claim() for _ in range(3)] == [True] * 3, "all is well"
    contact.failed("no answer")
    now = 101.0
    assert [contact.claim() for _ in range(3)] == [True, False, False]
    now = 102.0  # its write has had no answer, and the read that tells what became of it goes on
    contact.failed("no answer")
    now = 102.9
    contact.unread()
    now = 103.8
    assert not contact.claim()
    now = 104.0
    assert [contact.claim() for _ in range(3)] == [True, False, False]
    now = 106.0  # whoever tried has never said what came of it
    assert contact.claim()
    contact.succeeded()
    contact.unread()
    assert [contact.claim() for _ in range(3)] == [True] * 3
