"""What a network of visits says of patients who are given: for audits, which ask whether it knows them too well."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.histories import Histories
from ehr.records import Records
from worker.engine.histories.batch import Batch, Learnable
from worker.engine.histories.network import VisitDenoiser
from worker.engine.histories.tokens import VisitTokens
from worker.engine.losses import LOSS_TIMES, elbo_terms
from worker.engine.noise import HIDDEN, PRESENT, Noise

VISITS_AT_ONCE = 1024


@torch.no_grad()
def history_losses(
    denoiser: VisitDenoiser,
    noise: Noise,
    tokens: VisitTokens,
    most_visits: int,
    histories: Histories,
    seed: int,
    draws: int,
) -> NDArray[np.float64]:
    """T L_t at LOSS_TIMES of each patient's visits, the mean over visits and over `draws` noises, (P, times)."""
    denoiser.eval()
    rows, device = Learnable.of(histories, most_visits), next(denoiser.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    losses = np.zeros((len(rows), len(LOSS_TIMES)))
    for patients in _batches(rows.histories):
        some = rows.take(patients)
        visits = Batch.of(some, tokens, device)
        beside = visits.beside(denoiser)
        for place, share in enumerate(LOSS_TIMES):
            t = torch.full((len(visits.x_start),), max(1, round(share * noise.timesteps)), device=device)
            for _ in range(draws):
                x_t = torch.where(visits.known, visits.x_start, noise.q_sample(visits.x_start, t, generator))
                logits = denoiser(x_t, t, visits.x_start.sum(1), beside)
                l_t = elbo_terms(logits, noise, visits.x_start, x_t, t)[0].double().cpu().numpy()
                losses[patients, place] += noise.timesteps * np.add.reduceat(l_t, some.histories.offsets[:-1]) / draws
    return losses / rows.histories.visit_counts()[:, None]


@torch.no_grad()
def last_visits(
    denoiser: VisitDenoiser, noise: Noise, tokens: VisitTokens, histories: Histories, known: Records
) -> NDArray[np.float32]:
    """P(code at the last visit | all visits before it and the codes `known` of it), (P, N)."""
    denoiser.eval()
    device = next(denoiser.parameters()).device
    codes, parts = torch.arange(tokens.n_codes, device=device), []
    most = max(int(histories.visit_counts().max(initial=1)), 1)
    for patients in _batches(histories):
        some = Learnable.of(histories.take(patients), most)
        visits = Batch.of(some, tokens, device)
        last = torch.from_numpy(some.histories.offsets[1:] - 1).to(device)
        x = torch.where(visits.known, visits.x_start, HIDDEN).to(torch.uint8)[last]
        x[:, : tokens.n_codes][torch.from_numpy(known.take(patients).to_dense(np.uint8)).to(device) == 1] = PRESENT
        logits = denoiser.reading(x, None, visits.beside(denoiser).take(last)).logits(codes)
        parts.append(_probabilities(noise, logits, codes, x).cpu().numpy())
    return np.concatenate(parts)


def _batches(histories: Histories) -> list[NDArray[np.int64]]:
    """Patients in order, as many together as have about so many visits: some have hundreds."""
    number = (histories.offsets[1:] - 1) // VISITS_AT_ONCE
    return np.split(np.arange(len(histories)), np.flatnonzero(np.diff(number)) + 1)


def _probabilities(noise: Noise, logits: Tensor, codes: Tensor, x: Tensor) -> Tensor:
    """Of codes that are not known: by themselves, or within the group of which one holds."""
    inside = noise.groups.inside(codes)
    if inside is None:
        return torch.sigmoid(logits)
    return inside.in_full(logits, x[:, codes] == HIDDEN)
