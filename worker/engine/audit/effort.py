"""How many people an attack tries: as many as a fixed number of network operations pays for, on whatever machine.

A limit in seconds would make verdicts depend on how busy a machine is. Operations are counted, not timed: one person is
tried under a counter, and the rest is a division.
"""

from collections.abc import Callable

from torch.utils.flop_counter import FlopCounterMode

WORK = 5e11  # operations for one attack on one kind of people; a CPU core does some 3.5e10 in a second
# For the fewest people who say anything, where records have to be drawn: what needs more is not tried.
MOST_WORK = 8e12


def operations(call: Callable[[], object]) -> int:
    """Multiplications and additions in the networks that a call asks; the same number on every machine."""
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def affordable(each: float, fewest: int, most: int) -> int:
    """How many that take `each` operations WORK pays for, within bounds."""
    return int(min(most, max(fewest, WORK / max(each, 1.0))))
