"""Who may do what, what is withheld, what was done, and how much of each model was had."""

from fastapi import Request
from fastapi.responses import Response

from app.access import Anyone, Services_
from app.library import Cursor
from app.routers.audit import get_budgets, list_audit, list_keys
from app.routers.exposure import get_model_exposure
from app.routers.releases import list_releases, list_withheld
from app.web import lists
from app.web.shell import page, page_router

router = page_router()
SCOPES = {
    "data": "upload, evaluate, release and delete, and see what is computed from real records",
    "train": "train models",
    "generate": "make cohorts and previews",
    "read": "see models, cohorts and reports",
    "admin": "all of these, and the audit trail",
}


@router.get("/app/access")
def show_access(request: Request, services: Services_, identity: Anyone, cursor: Cursor = None) -> Response:
    reads, is_admin = identity.may("read"), identity.may("admin")
    models = lists.models(services, identity, 20).items if reads else []
    shown = {
        "scopes": SCOPES,
        "withheld": list_withheld(services, identity) if reads else [],
        "releases": list_releases(services, identity) if identity.may("data") else [],
        "exposure": [(model, get_model_exposure(model.id, services, identity)) for model in models],
        "budgets": get_budgets(services, identity),
        "keys": list_keys(services, identity) if is_admin else None,
        "audit": list_audit(services, identity, cursor=cursor, limit=25) if is_admin else None,
    }
    return page(request, "access.html", identity, {"active": "access", **shown})
