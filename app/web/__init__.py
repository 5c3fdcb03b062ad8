"""The web application: pages at `/`, for people. What a page shows or does is what the public API answers to the same
key: pages call its functions, and their script sends its requests. Nothing is loaded from elsewhere."""

from app.pages import environment
from app.web import access, assets, cohorts, data, home, jobs, login, models, reference, reports

ROUTERS = (
    assets.router,
    login.router,
    home.router,
    data.router,
    models.router,
    cohorts.router,
    jobs.router,
    reports.router,
    access.router,
    reference.router,
)


def warm_up() -> None:
    """Compile the templates and compress the files now: the first visitor does not wait for it."""
    for name in environment.list_templates(extensions=["html"]):
        environment.get_template(name)
    for name in assets.FILES:
        assets.asset(name)
