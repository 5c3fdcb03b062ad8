"""The Celery application. torch is never imported here: this module runs in the parent, and a process forked after
OpenMP has started hangs. Tasks import the engine when they run, in the child."""

import logging
import os
import signal
from typing import Any

from celery import Celery, signals

from runtime.broker import transport_options
from runtime.settings import get_settings
from worker import broker_patches, health
from worker.contract import HELP_TASK, TASKS
from worker.processes import die_with_parent
from worker.runtime import close_tracer
from worker.stopping import stopping
from worker.sweep import SweeperProcess

settings = get_settings()
broker_patches.apply(while_waiting=health.note)

celery_app = Celery("ehr_d3pm", broker=settings.resolved_redis_url)
celery_app.conf.update(
    accept_content=["json"],  # pickle is refused
    task_serializer="json",
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_max_tasks_per_child=100,
    worker_hijack_root_logger=False,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_cancel_long_running_tasks_on_connection_loss=False,  # the lease decides, not the broker
    broker_transport_options=transport_options(settings.resolved_redis_url),
)
log = logging.getLogger(__name__)
LOOK_SECONDS = 5


def _register(name: str) -> None:
    @celery_app.task(name=name)
    def task(job_id: str) -> None:
        with stopping.heeded():
            from worker.tasks import run

            run(job_id)


for _name in TASKS.values():
    _register(_name)


@celery_app.task(name=HELP_TASK)
def generate_parts(job_id: str) -> None:
    """Take parts of someone else's running generate job."""
    with stopping.heeded():
        from worker.tasks import help_generate

        help_generate(job_id)


@signals.setup_logging.connect
def _keep_our_logs(**_: Any) -> None:
    """Celery would add handlers of its own; those of runtime.logs are in place."""


@signals.worker_process_init.connect
def _child_started(**_: Any) -> None:
    # A child in the middle of a job must not outlive a killed parent: it would keep the lease of a worker that is gone.
    die_with_parent(signal.SIGKILL, os.getppid())


@signals.worker_process_shutdown.connect
def _child_ends(**_: Any) -> None:
    close_tracer()


@signals.worker_shutting_down.connect
def _told_to_stop(**_: Any) -> None:
    stopping.tell_all()


_sweeper = SweeperProcess()


@signals.worker_ready.connect
def _start_sweeper(sender: Any, **_: Any) -> None:
    _look_after()
    sender.timer.call_repeatedly(LOOK_SECONDS, _look_after)


def _look_after() -> None:
    _sweeper.ensure()
    health.note()


@signals.worker_shutdown.connect
def _stop_sweeper(**_: Any) -> None:
    _sweeper.stop()
    health.forget()
