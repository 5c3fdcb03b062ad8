"""What each kind of job does: load, call the engine, save. Imported in worker children only."""

from worker.execution import Task, execute
from worker.runtime import runtime


def task_of(kind: str) -> Task:
    """Each kind's module is imported when it is needed: not all need torch."""
    if kind == "ingest":
        from worker.tasks.ingest import ingest as task
    elif kind == "train":
        from worker.tasks.train import train as task
    elif kind == "generate":
        from worker.tasks.generate import generate as task
    elif kind == "export":
        from worker.tasks.export import export as task
    else:
        from worker.tasks.evaluate import evaluate as task
    return task


def run(job_id: str) -> None:
    """Run the job that is next, if there is one: this one or another."""
    execute(runtime(), job_id, task_of)


def help_generate(job_id: str) -> None:
    """Make parts of a running generate job until there are none to take. Jobs that wait go first."""
    from worker.tasks.generate import take_parts_of

    take_parts_of(runtime(), job_id, task_of)
