"""What each kind of job does: load, call the engine, save. Imported in worker children only."""

from worker.execution import execute
from worker.runtime import runtime


def run(kind: str, job_id: str) -> None:
    """Run the job if it is there to be run. Each kind's module is imported when it is needed: not all need torch."""
    if kind == "ingest":
        from worker.tasks.ingest import ingest as task
    elif kind == "train":
        from worker.tasks.train import train as task
    elif kind == "generate":
        from worker.tasks.generate import generate as task
    else:
        from worker.tasks.evaluate import evaluate as task
    execute(runtime(), job_id, task)


def help_generate(job_id: str) -> None:
    """Make parts of a running generate job until there are none to take."""
    from worker.tasks.generate import take_parts_of

    take_parts_of(runtime(), job_id)
