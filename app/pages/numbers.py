"""Numbers as people read them; filters of the templates too."""

RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def number(value: float, digits: int = 4) -> str:
    """With the digits that count."""
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    if abs(value) >= 1000 or "e+" in text:
        return f"{value:,.0f}"
    if "e" not in text:
        return text
    factor, power = f"{value:.2e}".split("e")
    return f"{float(factor):g} \u00d7 10{str(int(power)).translate(RAISED)}"


def percent(share: float) -> str:
    return f"{number(100 * share, digits=3)} %"


def span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}\u2013{last}"
