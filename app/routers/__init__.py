"""One file per resource. A route validates, asks a repository, and answers; nothing else."""

from app.routers import (
    audit,
    cohorts,
    datasets,
    exports,
    exposure,
    generate,
    health,
    jobs,
    models,
    parts,
    probe,
    references,
    releases,
    reports,
    train,
    webhooks,
)

ROUTERS = (
    references.router,
    datasets.router,
    train.router,
    models.router,
    exposure.router,
    generate.router,
    probe.router,
    jobs.router,
    cohorts.router,
    parts.router,
    exports.router,
    releases.router,
    reports.router,
    webhooks.router,
    audit.router,
    health.router,
)
