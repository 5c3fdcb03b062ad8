"""Places outside: where records may be fetched from, and where cohorts may be written to."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ehr_d3pm.cli.ids import id_argument
from ehr_d3pm.cli.jobs import finish
from ehr_d3pm.cli.output import AsJson, Wait, client_of, print_json, print_table
from ehr_d3pm.errors import Json

IN_A_SCHEMA = "CONNECTION.SCHEMA"


def places(context: typer.Context, as_json: AsJson = False) -> None:
    """List where records may come from and cohorts may go."""
    with client_of(context) as client:
        found = client.places()
    if as_json:
        print_json(found)
        return
    rows = [
        [way, place["kind"], place["name"] or "", place["url"] or ", ".join(place["schemas"] or [])]
        for way in ("sources", "sinks")
        for place in found[way]
    ]
    print_table(["", "kind", "name", "where"], rows, lines=False)


def export(
    context: typer.Context,
    cohort: Annotated[str, id_argument("id of a cohort (that of its generate job), or its beginning")],
    parquet: Annotated[
        str | None, typer.Option(metavar="S3-FOLDER", help="as Parquet files, such as s3://x/y/")
    ] = None,
    delta: Annotated[str | None, typer.Option(metavar="S3-FOLDER", help="as a Delta table")] = None,
    omop: Annotated[str | None, typer.Option(metavar=IN_A_SCHEMA, help="as OMOP tables in Postgres")] = None,
    names: Annotated[bool, typer.Option("--names", help="with what the codes are called")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="drop an earlier cohort's OMOP tables")] = False,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Write a cohort elsewhere; `ehr-d3pm places` lists where to."""
    sinks: list[Json] = []
    if omop is not None:
        sinks.append({"kind": "omop", **_in_schema(omop, "--omop"), "replace": replace})
    for kind, url in (("parquet", parquet), ("delta", delta)):
        if url is not None:
            sinks.append({"kind": kind, "url": url, "names": names})
    if len(sinks) != 1:
        raise typer.BadParameter("say where to, once: --parquet, --delta or --omop")
    with client_of(context) as client:
        finish(client, client.export(cohort, sinks[0]), wait, as_json)


def source_of(files: Sequence[str], omop: str | None, cohort: str | None, fhir: str | None) -> Json | None:
    """Where records are to be fetched from; None if they are uploaded."""
    addresses = [file for file in files if "://" in file]
    if sum((bool(files), omop is not None, fhir is not None)) != 1 or len(addresses) not in (0, len(files)):
        raise typer.BadParameter("give files, or addresses, or --omop, or --fhir")
    if cohort is not None and omop is None:
        raise typer.BadParameter("--cohort needs --omop")
    if omop is not None:
        return {"kind": "omop", **_in_schema(omop, "--omop"), **_cohort(cohort)}
    if fhir is not None:
        server, _, group = fhir.partition("/")
        return {"kind": "fhir", "server": server, **({"group": group} if group else {})}
    return {"kind": "objects", "urls": addresses} if addresses else None


def _in_schema(text: str, option: str) -> Json:
    connection, found, schema = text.rpartition(".")
    if not found:
        raise typer.BadParameter(f"{option} is written as {IN_A_SCHEMA}, such as warehouse.cdm")
    return {"connection": connection, "cdm_schema": schema}


def _cohort(text: str | None) -> Json:
    if text is None:
        return {}
    schema, _, number = text.rpartition(".")
    if not number.isdecimal():
        raise typer.BadParameter("--cohort is a number, or SCHEMA.NUMBER, such as results.42")
    return {"cohort_id": int(number), **({"cohort_schema": schema} if schema else {})}
