"""What a low key sees of a service before and after one patient is taken out of the data behind it."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np

from ehr_d3pm import ApiError, Client

ID = re.compile(r"\b(ds|mdl|job|up|key)_[0-9a-f]{32}\b")
# A report's page says when it was made, and names the data set as long as there is one: that it was deleted is no
# patient's secret.
NO_SECRET = re.compile(r"<div><dt>(Data&#39;s name|Report made|Cohort made)</dt>.*?</div>\s*")
# about the machine, the moment, or this very request
MOMENTARY = {"created_at", "started_at", "finished_at", "updated_at", "seconds", "workers", "attempts", "request_id"}
# Routes that tell what the asking itself makes more of: jobs that wait to be cancelled, or were done before they were.
GROWING = {"/jobs", "/cohorts", "/budgets", "/models/{model_id}/exposure", "/healthz", "/readyz", "/metrics"}
COHORTS, RECORDS = 4, 200
Question = dict[str, Any]
Answers = dict[str, str]  # by what was asked


def questions(person: Sequence[str], codes: Sequence[str], rng: np.random.Generator) -> list[Question]:
    """About one person: more and more of their codes, all but each one, and either those or something common."""
    known = [str(code) for code in rng.permutation(list(person))]
    fillers = [code for code in codes if code not in person]
    asked: list[Question] = [{}, *({"all_of": known[: n + 1]} for n in range(len(known)))]
    asked += [{"all_of": [code for code in known if code != left]} for left in known]
    asked += [{"all_of": known[:-1], "none_of": [known[-1]]}]
    for _ in range(6):
        either = [str(code) for code in rng.choice(fillers, min(3, len(fillers)), replace=False)]
        asked += [{"any_of": [[code, *either] for code in known]}, {"any_of": [either]}]
        asked += [{"all_of": known[:2], "targets": {either[0]: 0.25}}]
    return asked


def answers(client: Client, model: str, asked: Sequence[Question]) -> Answers:
    """Estimates, and what POST /generate decides; every job is cancelled."""
    found: Answers = {}
    for question in asked:
        name = json.dumps(question)
        found[f"estimate {name}"] = _visible(lambda q=question: client.estimate(model, 100, **q))
        found[f"generate {name}"] = _visible(lambda q=question: _submitted(client, model, q))
    return found


def cohorts(client: Client, model: str, asked: Sequence[Question]) -> Iterator[tuple[str, str]]:
    """(question, job id) of cohorts that are drawn to the end."""
    for question in asked[:COHORTS]:
        try:
            yield json.dumps(question), client.wait(client.generate(model, RECORDS, seed=7, **question))["id"]
        except ApiError:
            continue  # refused, which `answers` has compared


def downloads(http: httpx.Client, made: Sequence[tuple[str, str]]) -> Answers:
    """Records and reports, or why there are none."""
    found = {}
    for name, job in made:
        for path in (f"/cohorts/{job}/records", f"/reports/{job}", f"/reports/{job}.html"):
            found[f"{ID.sub('ID', path)} {name}"] = seen(http, path)
    return found


def walked(http: httpx.Client, ids: dict[str, str], jobs: Sequence[str]) -> Answers:
    """Every route that can be read, as it is with this key."""
    found: Answers = {}
    for path, methods in http.get("/openapi.json").raise_for_status().json()["paths"].items():
        if "get" not in methods or path in GROWING or path.endswith("/events"):
            continue
        for job in jobs if "{job_id}" in path else [""]:
            known = ids | {"job_id": job, "number": "0", "format": "long.csv"}
            url = path.format_map(defaultdict(lambda: "none", known))  # what else there is, is somebody's own
            found[f"{path} {jobs.index(job) if job else ''}"] = seen(http, url)
    return found


def flips(before: Answers, after: Answers) -> list[str]:
    """What was asked where the answers differ."""
    return [name for name in before if before[name] != after.get(name)]


def seen(http: httpx.Client, path: str) -> str:
    answer = http.get(path)
    if "json" not in answer.headers.get("content-type", ""):
        return f"{answer.status_code} {ID.sub('ID', NO_SECRET.sub('', answer.text))}"
    return f"{answer.status_code} {_plain(answer.json())}"


def _visible(ask: Any) -> str:
    try:
        return _plain(ask())
    except ApiError as error:
        return f"{error.status} {ID.sub('ID', str(error))}"


def _submitted(client: Client, model: str, question: Question) -> Any:
    job = client.generate(model, 1, **question)
    client.cancel(job["id"])
    return {name: job[name] for name in ("kind", "warnings")}


def _plain(value: Any) -> str:
    return ID.sub("ID", json.dumps(_lasting(value), sort_keys=True))


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(item) for name, item in value.items() if name not in MOMENTARY}
    return [_lasting(item) for item in value] if isinstance(value, list) else value
