"""Which arguments of ``serve`` are ours, which go on to vLLM, and which are refused."""

import pytest

from autellix_engine.launcher.arguments import REFUSED, InvalidArguments, ServeArguments, parse_serve


def test_everything_that_is_not_ours_goes_on_in_order() -> None:
    arguments = [
        "--model",
        "m",
        "--port",
        "80",
        "--scheduling",
        "{}",
        "--enforce-eager",
        "--max-num-seqs=2",
        "-tp",
        "2",
    ]
    given = parse_serve(arguments)
    assert given == ServeArguments(
        model="m", scheduling="{}", passed_on=["--port", "80", "--enforce-eager", "--max-num-seqs=2", "-tp", "2"]
    )


@pytest.mark.parametrize("arguments", [["m"], ["--model", "m"], ["--model=m"], ["--port", "1", "--model", "m"]])
def test_the_model_is_found_wherever_it_stands(arguments: list[str]) -> None:
    assert parse_serve(arguments).model == "m"


def test_a_model_must_be_named() -> None:
    with pytest.raises(InvalidArguments, match="--model: missing"):
        parse_serve(["--port", "80"])


@pytest.mark.parametrize("name", ["--model", "--scheduling"])
@pytest.mark.parametrize("ending", [[], [""]])
def test_a_value_that_is_missing_is_named(name: str, ending: list[str]) -> None:
    with pytest.raises(InvalidArguments, match=f"{name}: a value is missing"):
        parse_serve(["--port", "80", name, *ending])


@pytest.mark.parametrize("arguments", [["--scheduling", '{"policy": "fcfs"}'], ['--scheduling={"policy": "fcfs"}']])
def test_scheduling_is_taken_as_it_is(arguments: list[str]) -> None:
    assert parse_serve(["m", *arguments]).scheduling == '{"policy": "fcfs"}'


def test_metrics_open_only_when_asked() -> None:
    assert not parse_serve(["m"]).open_metrics
    assert parse_serve(["m", "--open-metrics"]).open_metrics


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--help=all"], ["m", "--help"]])
def test_help_is_ours(arguments: list[str]) -> None:
    assert parse_serve(arguments).help


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_arguments_of_the_system_are_refused_by_name_with_the_reason(name: str) -> None:
    argument = name.replace("*", "x")
    for spelled in ([argument, "v"], [f"{argument}=v"]):
        with pytest.raises(InvalidArguments) as caught:
            parse_serve(["m", *spelled])
        assert str(caught.value) == f"{argument}: not allowed here: {REFUSED[name]}"


@pytest.mark.parametrize(
    "argument",
    [
        "--scheduler_cls",
        "--scheduler-c",
        "--additional-config.autellix",
        "--additional_config.x.y=1",
        "--additional-config.list+",
        "--data_parallel_size",
        "-dp",
        "-dpl",
        "-as",
        "--api",
        "--middle",
        "--ssl-keyfile",
        "--shutdown_timeout=0",
    ],
)
def test_other_spellings_that_vllm_understands_are_refused_too(argument: str) -> None:
    with pytest.raises(InvalidArguments, match="not allowed here"):
        parse_serve(["m", argument])


@pytest.mark.parametrize("argument", ["--hos", "--ho", "--mod", "--sched", "--open"])
def test_arguments_that_are_read_here_are_not_abbreviated(argument: str) -> None:
    with pytest.raises(InvalidArguments, match=f"^{argument}: "):
        parse_serve(["m", argument, "x"])


@pytest.mark.parametrize(
    "argument",
    ["--config-format", "--speculative-config", "--model-impl", "-O3", "-dcp", "-1", "-", "--no-async-scheduling"],
)
def test_similar_arguments_are_not_refused(argument: str) -> None:
    assert parse_serve(["m", argument]).passed_on == [argument]


@pytest.mark.parametrize(
    ("arguments", "loopback"),
    [
        ([], False),
        (["--host", "127.0.0.1"], True),
        (["--host=127.9.9.9"], True),
        (["--host", "localhost"], True),
        (["--host", "::1"], True),
        (["--host", "0.0.0.0"], False),
        (["--host", "::"], False),
        (["--host", "10.0.0.1"], False),
        (["--host", "example.org"], False),
        (["--host", "127.0.0.1", "--host", "0.0.0.0"], False),
        (["--host"], False),
    ],
)
def test_who_can_reach_the_server_is_known(arguments: list[str], loopback: bool) -> None:
    assert parse_serve(["m", *arguments]).loopback_only is loopback
