from demo import scenario
from support.traffic import Call, Program, ProgramRun


def run(name: str, *, first: float, total: float) -> ProgramRun:
    program = Program(name=name, calls=1, max_tokens=1)
    call = Call(first_token_seconds=first, seconds=total, tokens=1, text="x", engine="e", route="new")
    return ProgramRun(program=program, calls=(call,), seconds=total)


def test_short_and_long_programs_are_told_apart() -> None:
    runs = [run("short-1", first=1, total=2), run("short-2", first=3, total=4), run("long-1", first=9, total=20)]
    summary = scenario.summarise("PLAS", runs, preemptions=5)
    assert summary.short_first_token == 2
    assert summary.short_first_token_worst == 3
    assert summary.short_program == 3
    assert summary.long_program == 20
    assert summary.preemptions == 5


def test_the_table_says_by_how_much_the_short_programs_gain_and_the_long_ones_lose() -> None:
    stock = scenario.summarise("stock", [run("short-1", first=4, total=8), run("long-1", first=1, total=10)], 0)
    plas = scenario.summarise("PLAS", [run("short-1", first=1, total=2), run("long-1", first=1, total=11)], 3)
    lines = scenario.comparison(stock, plas).splitlines()
    assert "4.0 times sooner" in lines[1]
    assert "1.1 times later" in lines[4]
    assert lines[5].split() == ["preemptions", "0", "3"]


def test_columns_line_up_whatever_their_content() -> None:
    text = scenario.aligned([("a", "bb"), ("ccc", "d")])
    assert text == "a    bb\nccc   d"


def test_more_long_programs_begin_at_once_than_there_are_slots_and_short_ones_one_after_another() -> None:
    assert all(p.start_after_seconds == 0 for p in scenario.LONG)
    assert len(scenario.LONG) > scenario.SLOTS
    assert len({p.start_after_seconds for p in scenario.SHORT}) == len(scenario.SHORT)
