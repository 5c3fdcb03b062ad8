"""The largest values that settings may have: far above what anybody has found use for, and low enough that no request
keeps a worker for weeks or asks for a network that fits no machine."""

from typing import Annotated

from pydantic import Field

MOST_EPOCHS = 100_000
LARGEST_BATCH = 65_536
WIDEST = 16_384
MOST_LAYERS = 64
MOST_CALLS = 10_000  # of the network for one record

Width = Annotated[int, Field(ge=1, le=WIDEST)]
