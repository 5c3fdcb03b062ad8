"""What the page calls a metric: by its title; the tables below serve stored reports whose metrics have none."""

from ehr.reports import MetricReport

METRICS = {
    "prevalence_spearman": "Order of codes, common to rare",
    "prevalence_spearman_rare": "The same among rare codes",
    "codes_missing": "Codes missing",
    "cmd": "Links between codes",
    "mmd": "Whole records",
    "mcad": "Codes per record",
    "held_out_elbo": "Surprise at unseen records (nats)",
    "auroc": "Ranking patients by risk (AUROC)",
    "auprc": "Pointing out patients (AUPRC)",
    "attainment": "Records that meet the condition",
    "slice_prevalence_l1": "Frequencies of other codes",
    "slice_cmd": "Links between codes",
    "slice_mcad": "Codes per record",
    "ess": "Records it is worth, by weight",
    "mir": "Membership, by nearly equal records (F1)",
    "mia_tpr_at_fpr": "Membership, careful attacker",
    "air": "Inferring other codes (F1)",
    "dcr": "Closer to training patients",
    "nndr": "Singling out training patients",
    "exact_matches": "Copies",
}
DRAWN = METRICS | {  # in a picture there is less room, and no text beside it
    "mir": "Membership, nearly equal records (F1)",
    "exact_matches": "Copies (share of records)",
}


def title(metric: MetricReport) -> str:
    return metric.title or METRICS.get(metric.name, metric.name)


def drawn_title(metric: MetricReport) -> str:
    return metric.title or DRAWN.get(metric.name, metric.name)
