"""Reading a component's metrics page."""

import re

import aiohttp

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")


def total(page: str, name: str, label: str = "") -> float:
    """Sum of a metric's samples whose labels contain ``label``; 0 if there is none."""
    matches = filter(None, map(_SAMPLE.match, page.splitlines()))
    return sum(float(m["value"]) for m in matches if m["name"] == name and label in (m["labels"] or ""))


async def scrape(url: str, key: str | None = None) -> str:
    """The text of a metrics page. Raises aiohttp.ClientError."""
    sent = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, headers=sent) as answer:
        answer.raise_for_status()
        return await answer.text()
