"""A few records to look at, before a cohort is asked for."""

import typer

from ehr_d3pm.cli.cohorts import ModelId
from ehr_d3pm.cli.conditions import Asked, takes_conditions
from ehr_d3pm.cli.output import AsJson, client_of, print_json, print_table, say, warn

MOST = 100
PROBED = ("all_of", "any_of", "none_of", "targets", "history")  # records that are there already need no method


@takes_conditions
def probe(context: typer.Context, model: ModelId, *, asked: Asked, as_json: AsJson = False) -> None:
    """Show a few records of a model at once.

    At most 100, without a job; counted like a cohort of so many.
    """
    options = {name: value for name, value in asked.options().items() if name in PROBED}
    with client_of(context) as client:
        found = client.probe(model, min(asked.n, MOST), **options)
    if as_json:
        print_json(found)
        return
    for warning in found["warnings"]:
        warn(warning)
    for number, record in enumerate(found["records"], 1):
        say(f"{number:>3}  {', '.join(record)}")
    for number, patient in enumerate(found.get("patients", []), 1):
        say(f"{number:>3}  {', '.join(patient['static'])}")
        for visit in patient["visits"]:
            say(f"     after {visit['gap_days']} days: {', '.join(visit['codes'])}")
    print_table(["code", "meaning"], [[c["code"], c["description"] or ""] for c in found["codes"]], lines=False)
