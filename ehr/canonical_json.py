"""JSON whose bytes can be hashed and compared."""

import json
from typing import Any


def to_json(value: Any) -> bytes:
    """Canonical JSON: the same value is the same bytes, everywhere."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, indent=1).encode()
