"""The private parts of vLLM that the scheduler class relies on. A new version is supported once this is green."""

import inspect
import logging
import signal
import threading
from importlib.metadata import entry_points
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import platforms
from vllm.distributed.device_communicators import shm_broadcast
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core import EngineCore, EngineCoreProc
from vllm.v1.executor.multiproc_executor import WorkerProc
from vllm.v1.request import Request, RequestStatus

from autellix_engine import on_cpus, process_plugin
from autellix_engine.fatal import FatalErrors
from autellix_engine.launcher import handover
from support.model_free import make_request, make_scheduler, vllm_config


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (AsyncScheduler, "schedule", ["self", "throttle_prefills"]),
        (AsyncScheduler, "add_request", ["self", "request"]),
        (AsyncScheduler, "update_from_output", ["self", "scheduler_output", "model_runner_output"]),
        (AsyncScheduler, "finish_requests", ["self", "request_ids", "finished_status"]),
        (AsyncScheduler, "shutdown", ["self"]),
        (AsyncScheduler, "has_requests", ["self"]),
        (AsyncLLM, "is_paused", ["self"]),
        (AsyncScheduler, "get_request_counts", ["self"]),
        (AsyncScheduler, "_enqueue_waiting_request", ["self", "request"]),
        (AsyncScheduler, "_preempt_request", ["self", "request", "timestamp", "drop_stale_output"]),
        (AsyncScheduler, "_free_request", ["self", "request", "delay_free_blocks"]),
        (KVCacheManager, "get_computed_blocks", ["self", "request"]),
        (KVCacheManager, "get_blocks", ["self", "request_id"]),
        (
            KVCacheCoordinator,
            "get_num_blocks_to_allocate",
            [
                "self",
                "request_id",
                "num_tokens",
                "new_computed_blocks",
                "num_encoder_tokens",
                "total_computed_tokens",
                "num_local_computed_tokens",
                "num_tokens_main_model",
                "apply_admission_cap",
                "prefill_end",
            ],
        ),
    ],
)
def test_methods_have_the_signatures_that_are_overridden_or_called(
    owner: Any, name: str, parameters: list[str]
) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_the_queues_have_exactly_the_methods_that_ours_implement() -> None:
    assert RequestQueue.__abstractmethods__ == {
        "add_request",
        "pop_request",
        "peek_request",
        "prepend_request",
        "prepend_requests",
        "remove_request",
        "remove_requests",
        "__bool__",
        "__len__",
        "__iter__",
    }


def test_the_scheduler_has_the_attributes_that_are_used() -> None:
    scheduler = make_scheduler(AsyncScheduler, vllm_config())
    names = (
        "vllm_config requests running waiting kv_holding_waiting deferred_waiting policy max_num_active_reqs "
        "num_waiting_for_streaming_input kv_cache_manager requires_kv_delivery "
        "finished_recving_kv_req_ids lora_config parallel_config _pause_state scheduler_config max_num_scheduled_tokens"
    )
    assert [name for name in names.split() if not hasattr(scheduler, name)] == []
    manager = scheduler.kv_cache_manager
    assert manager.block_pool.get_num_free_blocks() > 0
    assert manager.coordinator.single_type_managers[0].block_size == 16
    assert manager.num_kv_cache_groups == 1
    assert 0 <= manager.usage <= 1


def test_a_request_has_the_attributes_that_are_used() -> None:
    names = (
        "request_id status priority arrival_time sampling_params pooling_params num_computed_tokens num_prompt_tokens "
        "num_output_tokens num_tokens num_in_flight_tokens num_stale_output_tokens drop_stale_output lora_request "
        "structured_output_request is_prefill_chunk"
    )
    request = make_request("a")
    assert [name for name in names.split() if not hasattr(request, name)] == []


def test_the_states_of_a_request_are_those_that_are_told_apart() -> None:
    assert {status.name for status in RequestStatus} == {
        "WAITING",
        "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        "WAITING_FOR_REMOTE_KVS",
        "WAITING_FOR_STREAMING_REQ",
        "RUNNING",
        "PREEMPTED",
        "FINISHED_STOPPED",
        "FINISHED_LENGTH_CAPPED",
        "FINISHED_ABORTED",
        "FINISHED_IGNORED",
        "FINISHED_ERROR",
        "FINISHED_REPETITION",
    }


def test_the_base_does_what_ours_builds_on() -> None:
    """Lines of the base that behaviour depends on and that no signature shows."""
    schedule, preempt = inspect.getsource(Scheduler.schedule), inspect.getsource(Scheduler._preempt_request)
    assert "key=lambda r: (r.priority, r.arrival_time)" in schedule, "victims of memory: worst level, latest"
    assert "request_queue = self.kv_holding_waiting" in schedule, "one queue is drained before the other"
    assert "self.scheduler_config.long_prefill_token_threshold" in schedule, "read in every step"
    assert "if not preempted_reqs and" in schedule, "nothing is admitted in a step that ran out of memory"
    assert "self.waiting.prepend_request(request)" in preempt, "a preempted request comes back through the queue"
    assert "self.running" not in preempt, "the caller removes it from the running ones"
    assert "self._free_request(" in inspect.getsource(Scheduler.update_from_output)
    assert "self._free_request(" in inspect.getsource(Scheduler.finish_requests)
    assert "self.scheduler.has_requests()" in inspect.getsource(EngineCoreProc.has_work), "asked before it sleeps"
    asleep = inspect.getsource(EngineCoreProc._process_input_queue)
    assert "while not self.has_work()" in asleep, "and again after whatever woke it"
    aborts_first = inspect.getsource(EngineCore.step)
    assert aborts_first.index("_process_aborts_queue") < aborts_first.index("update_from_output")


def test_a_client_may_set_a_priority_that_a_new_request_carries() -> None:
    assert Request.__lt__(make_request("a", priority=1), make_request("b", priority=2))


def test_whoever_waits_for_a_message_of_another_process_yields_by_a_name_of_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = threading.Event()
    monkeypatch.setattr(shm_broadcast, "sched_yield", waited.set)
    writer = MessageQueue(1, 1)
    reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
    got: list[object] = []
    reading = threading.Thread(target=lambda: got.append(reader.dequeue(timeout=30)))
    reading.start()
    assert waited.wait(30)
    writer.enqueue("step")
    reading.join()
    assert got == ["step"]


def test_the_general_plugin_is_found_by_vllm() -> None:
    [plugin] = [it for it in entry_points(group="vllm.general_plugins") if it.name == "autellix"]
    assert plugin.load() is process_plugin.install


def test_a_worker_logs_what_ends_it_where_its_cause_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(self: object, **_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(WorkerProc, "__init__", fails)
    parallel = SimpleNamespace(assigned_physical_gpu_ids=None, numa_bind=False)
    logger = logging.getLogger("vllm.v1.executor.multiproc_executor")
    monkeypatch.setattr(logger, "handlers", [FatalErrors({handover.TERMINATION_LOG: str(log)})])
    _, ready = Pipe(duplex=False)
    WorkerProc.worker_main(vllm_config=SimpleNamespace(parallel_config=parallel), ready_pipe=ready)
    assert log.read_text() == "OutOfMemoryError: CUDA out of memory\n"


@pytest.mark.parametrize("on_cpu", [True, False])
def test_only_on_cpus_do_processes_sleep_while_they_wait_and_ask_for_tiles(
    monkeypatch: pytest.MonkeyPatch, *, on_cpu: bool
) -> None:
    asked: list[bool] = []
    original = shm_broadcast.sched_yield
    monkeypatch.setattr(shm_broadcast, "sched_yield", original)
    monkeypatch.setattr(torch.cpu, "_init_amx", lambda: asked.append(True))
    monkeypatch.setattr(platforms, "current_platform", SimpleNamespace(is_cpu=lambda: on_cpu))
    on_cpus.install()
    assert shm_broadcast.sched_yield is (on_cpus.sleep_a_little if on_cpu else original)
    assert bool(asked) is on_cpu


def test_a_processor_with_tiles_grants_them_and_others_say_no() -> None:
    assert torch.cpu._init_amx() is torch.cpu._is_amx_tile_supported()
