"""Reading a component's metrics page."""

import re

import httpx

_TYPE = re.compile(r"^# TYPE (?P<name>\S+) (?P<type>\S+)$")
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")


def total(page: str, name: str, label: str = "") -> float:
    """Sum of a metric's samples whose labels contain ``label``; 0 if there is none."""
    matches = filter(None, map(_SAMPLE.match, page.splitlines()))
    return sum(float(m["value"]) for m in matches if m["name"] == name and label in (m["labels"] or ""))


def series(page: str) -> set[str]:
    """The names of all series of a page, also of metrics that have no sample yet."""
    found = set()
    for match in filter(None, map(_TYPE.match, page.splitlines())):
        suffixes = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}.get(match["type"], ("",))
        found |= {match["name"] + suffix for suffix in suffixes}
    return found


def scrape(url: str, key: str | None = None) -> str:
    """The text of a metrics page. Raises httpx.HTTPError."""
    answer = httpx.get(url, headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=10)
    return answer.raise_for_status().text
