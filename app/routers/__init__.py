"""One file per resource. A route validates, asks a repository, and answers; nothing else."""

from app.routers import cohorts, datasets, generate, health, jobs, models, parts, releases, reports, train

ROUTERS = (
    datasets.router,
    train.router,
    models.router,
    generate.router,
    jobs.router,
    cohorts.router,
    parts.router,
    releases.router,
    reports.router,
    health.router,
)
