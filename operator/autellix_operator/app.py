"""The running operator: watches, queue, workers, leases, figures, HTTP, put together."""

import asyncio
import logging
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import kopf

from autellix_operator import diff, handlers
from autellix_operator.api.base import InvalidSpec
from autellix_operator.api.names import FIELD_MANAGER, Key
from autellix_operator.desired.objects import Images
from autellix_operator.diff import Difference
from autellix_operator.figures.keeper import FIGURES_MANAGER, FiguresKeeper
from autellix_operator.figures.loop import FiguresLoop
from autellix_operator.figures.scrape import http_scraper
from autellix_operator.http import CannotListen, application, serving
from autellix_operator.kube.applier import AUTELLIX_CLUSTER, ApiError, Applier, NotFound, Refused
from autellix_operator.kube.client import KubernetesApplier, NoCredentials, connect
from autellix_operator.leadership import Leadership
from autellix_operator.maker import Maker
from autellix_operator.metrics import Metrics
from autellix_operator.reconcile import Reconciler
from autellix_operator.settings import Settings
from autellix_operator.workers import Pace, ReferenceIndex, Worker
from autellix_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

_FIGURES_AT_ONCE = 4


class StartError(Exception):
    """The operator cannot start; the message is one line that says why."""


async def run(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. Raises StartError."""
    ready, stop = asyncio.Event(), asyncio.Event()
    queue, references = WorkQueue(time.monotonic), ReferenceIndex()
    leases: list[Leadership] = []
    metrics = Metrics(queue, lambda: sum(each.held() for each in leases))
    host, port = settings.http_address
    try:
        async with (
            connect() as api,
            http_scraper() as scraper,
            serving(application(queue, metrics, ready.is_set), host, port),
        ):
            applier = KubernetesApplier(api, FIELD_MANAGER, metrics.api_error)
            await check_access(applier, settings.watch_namespaces)
            # The leases' requests are not those of reconciles: whether they succeed is shown by the metric of leases.
            leadership = Leadership(
                KubernetesApplier(api, FIELD_MANAGER, lambda status: None),
                f"{socket.gethostname()}_{secrets.token_hex(4)}",
                settings.watch_namespaces,
                time.monotonic,
                _now,
            )
            leases.append(leadership)
            await leadership.attempt()
            keeper = FiguresKeeper(KubernetesApplier(api, FIGURES_MANAGER, metrics.api_error), scraper, _now)
            figures = FiguresLoop(
                _while_leading(leadership, keeper.refresh), settings.figures_seconds, random.random, time.monotonic
            )
            reconciler = Reconciler(applier, _images(settings), _now, _new_secret, settings.namespace, keeper.refresh)
            worker = Worker(
                queue,
                reconciler.reconcile,
                Pace(settings.resync_seconds),
                references,
                metrics,
                random.random,
                time.monotonic,
                leadership.leads,
            )
            work = [leadership.run(), *(worker.run() for _ in range(settings.workers))]
            work += [figures.run() for _ in range(_FIGURES_AT_ONCE)]
            # Before kopf starts: at its end it cancels every task that began after it.
            async with _running(work, stop):
                await kopf.operator(
                    registry=handlers.registry(queue, references, figures.add),
                    settings=handlers.settings(),
                    # Left to itself kopf asks for the user's name, and the user of an image need not have one.
                    identity=socket.gethostname(),  # type: ignore[arg-type]  # its NewType is not public
                    clusterwide=not settings.watch_namespaces,
                    namespaces=settings.watch_namespaces,
                    stop_flag=stop,
                    ready_flag=ready,
                )
            await leadership.release()
    except NoCredentials as error:
        raise StartError(str(error)) from error
    except CannotListen as error:
        raise StartError(f"cannot listen on {settings.http_listen}: {error}") from error


async def difference(settings: Settings, key: Key) -> Difference:
    """What a reconcile of a cluster would change. Raises StartError."""
    try:
        async with connect() as api:
            dry = KubernetesApplier(api, FIELD_MANAGER, lambda status: None, dry_run=True)
            return await diff.difference(dry, Maker(_images(settings), _now, _new_secret, settings.namespace), key)
    except NoCredentials as error:
        raise StartError(str(error)) from error
    except NotFound as error:
        raise StartError(f"there is no AutellixCluster {key}") from error
    except (ApiError, InvalidSpec) as error:
        raise StartError(f"{key}: {error}") from error


def _images(settings: Settings) -> Images:
    return Images(settings.engine_image, settings.controller_image, settings.etcd_image)


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def _now() -> datetime:
    return datetime.now(UTC)


def _while_leading(
    leadership: Leadership, refresh: Callable[[Key], Awaitable[bool]]
) -> Callable[[Key], Awaitable[bool]]:
    async def guarded(key: Key) -> bool:
        return await refresh(key) if await leadership.leads(key.namespace) else True

    return guarded


@asynccontextmanager
async def _running(work: "list[Coroutine[Any, Any, Any]]", stop: asyncio.Event) -> AsyncIterator[None]:
    """Runs coroutines meanwhile, which end by cancellation only; any other end sets ``stop``."""
    tasks = [asyncio.create_task(each) for each in work]
    for task in tasks:
        task.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def check_access(applier: Applier, namespaces: Sequence[str]) -> None:
    """Finds out before the watches start, for kopf would only log errors and then watch nothing. Raises StartError
    where nothing could be served: of several namespaces one may be gone. ``namespaces``: none are all."""
    wanted, refused = namespaces or ("default",), dict[str, Refused]()
    for namespace in wanted:
        try:
            await applier.list(AUTELLIX_CLUSTER, namespace, {})
        except NotFound as error:
            raise StartError(
                "the AutellixCluster API is not there: install crds/ or the chart with crds.enabled"
            ) from error
        except Refused as error:
            refused[namespace] = error
        except ApiError as error:
            raise _unreadable(namespace, error) from error
    for namespace, refusal in refused.items():
        if len(refused) == len(wanted):
            raise _unreadable(namespace, refusal) from refusal
        log.warning("not serving namespace %s before the next start: %s", namespace, refusal)
    log.info("serving %s", ", ".join(each for each in namespaces if each not in refused) or "all namespaces")


def _unreadable(namespace: str, error: ApiError) -> StartError:
    return StartError(f"cannot list AutellixClusters in namespace {namespace}: {error}")
