"""The running operator: watches, queue, workers, HTTP, put together."""

import asyncio
import logging
import random
import secrets
import socket
import time
from datetime import UTC, datetime

import kopf

from autellix_operator import handlers
from autellix_operator.api.names import FIELD_MANAGER
from autellix_operator.desired.objects import Images
from autellix_operator.http import CannotListen, application, serving
from autellix_operator.kube.applier import AUTELLIX_CLUSTER, ApiError, NotFound
from autellix_operator.kube.client import KubernetesApplier, NoCredentials, connect
from autellix_operator.metrics import Metrics
from autellix_operator.reconcile import Reconciler
from autellix_operator.settings import Settings
from autellix_operator.workers import Pace, ReferenceIndex, Worker
from autellix_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)


class StartError(Exception):
    """The operator cannot start; the message is one line that says why."""


async def run(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. Raises StartError."""
    queue = WorkQueue(time.monotonic)
    metrics = Metrics(queue)
    references = ReferenceIndex()
    ready, stop = asyncio.Event(), asyncio.Event()
    host, port = settings.http_address
    try:
        async with connect() as api, serving(application(queue, metrics, ready.is_set), host, port):
            applier = KubernetesApplier(api, FIELD_MANAGER, metrics.api_error)
            await _check_access(applier, settings)
            images = Images(settings.engine_image, settings.controller_image, settings.etcd_image)
            reconciler = Reconciler(applier, images, lambda: datetime.now(UTC), lambda: secrets.token_urlsafe(32))
            worker = Worker(
                queue,
                reconciler.reconcile,
                Pace(settings.resync_seconds),
                references,
                metrics,
                random.random,
                time.monotonic,
            )
            # Before kopf starts: at its end it cancels every task that began after it.
            workers = [asyncio.create_task(worker.run(), name=f"worker {index}") for index in range(settings.workers)]
            for task in workers:
                # A worker ends by cancellation only; any other end must end the operator too.
                task.add_done_callback(lambda _: stop.set())
            try:
                await kopf.operator(
                    registry=handlers.registry(queue, references),
                    settings=handlers.settings(),
                    # Left to itself kopf asks for the user's name, and the user of an image need not have one.
                    identity=socket.gethostname(),  # type: ignore[arg-type]  # its NewType is not public
                    clusterwide=not settings.watch_namespaces,
                    namespaces=settings.watch_namespaces,
                    stop_flag=stop,
                    ready_flag=ready,
                )
            finally:
                for task in workers:
                    task.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
    except NoCredentials as error:
        raise StartError(str(error)) from error
    except CannotListen as error:
        raise StartError(f"cannot listen on {settings.http_listen}: {error}") from error


async def _check_access(applier: KubernetesApplier, settings: Settings) -> None:
    """Finds out before the watches start, for kopf would only warn and then watch nothing."""
    for namespace in settings.watch_namespaces or ("default",):
        try:
            await applier.list(AUTELLIX_CLUSTER, namespace, {})
        except NotFound as error:
            raise StartError(
                "the AutellixCluster API is not there: install crds/ or the chart with crds.enabled"
            ) from error
        except ApiError as error:
            raise StartError(f"cannot list AutellixClusters in namespace {namespace}: {error}") from error
    log.info("serving %s", ", ".join(settings.watch_namespaces) or "all namespaces")
