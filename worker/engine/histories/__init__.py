"""Patients over time: masked diffusion within a visit, visit after visit.

Read in this order: `tokens` (a visit as a record), `earlier` (what is known of the visits before it), `network`, `walk`
(visit after visit), `conditions`.
"""
