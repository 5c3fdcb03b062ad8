"""Describe a finished cohort by its own records: the report that everyone may read, made where no real record is."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from ehr.groups import Groups
from ehr.rules import Rules
from ehr.shareable import CohortDescription, SyntheticSide
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore
from model_store.cohorts import effective_records, iter_histories, iter_records
from model_store.manifests import CohortManifest, vocabulary_in
from worker.evaluation.courses import CourseTally, codes_in
from worker.evaluation.description import Tally, attained
from worker.evaluation.plausible import rules_asked_over_time

MOST_NAMED = 100  # of the codes that nobody asked for


def describe(
    store: BlobStore, cohort_id: str, manifest: CohortManifest, config: Mapping[str, Any]
) -> CohortDescription:
    """Block by block. `config`: of the generator, which knows what holds for every record."""
    vocabulary, asked = vocabulary_in(manifest), manifest.condition
    condition = vocabulary.resolve(asked)
    wanted = None if condition.is_empty else condition
    tally = Tally(vocabulary, wanted, vocabulary.resolve_targets(condition, manifest.targets))
    if manifest.origin is not None:
        described = _described_over_time(store, manifest, tally, config)
    else:
        stored = _stored_rules(config, "groups", "rules", vocabulary)
        _hold_to(tally, stored, stored.without(wanted))
        for records in iter_records(store, manifest):
            tally.add(records)
        described = tally.described(None if wanted is None else effective_records(store, manifest))
    shown = [*asked.all_of, *chain(*asked.any_of), *asked.none_of, *chain(*(each.codes for each in manifest.targets))]
    shown += [each.code for each in described.prevalence[:MOST_NAMED]]
    if (history := manifest.history) is not None:
        shown += history.patterns
    if described.courses is not None:
        shown += codes_in(described.courses)
    return CohortDescription(
        cohort_id=cohort_id,
        model_id=manifest.model.id or "",
        dataset_id=manifest.model.dataset_id or "",
        records=tally.records,
        codes=len(vocabulary),
        sampling=manifest.resolved.get("sampling"),
        condition=None if asked.is_empty else asked,
        history=history,
        targets=tally.attained(manifest.targets),
        synthetic=described,
        names={code: name for code in dict.fromkeys(shown) if (name := vocabulary.name_of(code)) is not None},
    )


def _stored_rules(config: Mapping[str, Any], groups: str, rules: str, vocabulary: Vocabulary) -> Rules:
    """By their names in the generator's configuration."""
    return Rules.from_json(config.get(rules, {}), Groups.from_json(config.get(groups, []), range(len(vocabulary))))


def _hold_to(tally: Tally, stored: Rules, held: Rules) -> None:
    """Judge by the rules that were `held` under the condition. Whether there is a figure follows from the model alone:
    whether a rule gave way to a condition can depend on one patient."""
    tally.groups, tally.rules = stored.groups if len(stored.groups) else None, held if len(stored) else None


def _described_over_time(
    store: BlobStore, manifest: CohortManifest, tally: Tally, config: Mapping[str, Any]
) -> SyntheticSide:
    """The same of patients over time, with their courses."""
    courses, asked = CourseTally(tally.vocabulary), manifest.history
    condition = None if asked is None else asked.resolve(tally.vocabulary)
    stored = _stored_rules(config, "visit_groups", "visit_rules", tally.vocabulary)
    _hold_to(tally, stored, rules_asked_over_time(stored, condition))
    met = 0
    for histories in iter_histories(store, manifest):
        tally.add(histories.ever(), histories.visits_with_static())
        courses.add(histories)
        met += 0 if condition is None else int(condition.satisfied_by(histories).sum())
    described = tally.described(None)
    metrics = dict(described.metrics)
    if condition is not None:
        metrics |= {each.name: each for each in attained(met, tally.records, effective_records(store, manifest))}
    return described.model_copy(update={"courses": courses.described(), "metrics": metrics})
