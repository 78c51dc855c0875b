"""The figure as SVG, drawn from the JSON file's rows without a plotting library."""

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from swapbench.cases import Method, Traffic, size_text
from swapbench.measure import Measurement

# Okabe and Ito's colours, told apart by colour-blind readers too.
COLOURS = {
    Method.LARGE: "#000000",
    Method.OURS: "#D55E00",
    Method.GATHER: "#E69F00",
    Method.BATCH: "#0072B2",
    Method.LOOP: "#999999",
}
LABELS = {
    Method.LARGE: "one large pinned copy",
    Method.OURS: "swap engine",
    Method.GATHER: "swap engine, gather only",
    Method.BATCH: "driver's batched copy",
    Method.LOOP: "one copy per fragment",
}
WIDTH, HEIGHT, LEFT, TOP, GAP = 280, 200, 60, 70, 60


def draw(measurements: Sequence[Measurement], title: str) -> str:
    """Panels: a row per total size, a column per direction; fragment size across, GB/s upwards."""
    totals = sorted({row.total_bytes for row in measurements})
    columns = [traffic for traffic in Traffic if any(row.traffic is traffic for row in measurements)]
    width = LEFT + len(columns) * (WIDTH + GAP)
    height = TOP + len(totals) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"',
        ' font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
        *_legend(),
    ]
    for i, total in enumerate(totals):
        for j, traffic in enumerate(columns):
            rows = [row for row in measurements if row.total_bytes == total and row.traffic is traffic]
            parts += _panel(rows, LEFT + j * (WIDTH + GAP), TOP + i * (HEIGHT + GAP), f"{traffic}, {size_text(total)}")
    return "\n".join([*parts, "</svg>\n"])


def _legend() -> list[str]:
    parts = []
    for i, (method, label) in enumerate(LABELS.items()):
        x = LEFT + i * 180
        parts.append(f'<line x1="{x}" y1="38" x2="{x + 20}" y2="38" stroke="{COLOURS[method]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 25}" y="42">{escape(label)}</text>')
    return parts


def _panel(rows: Sequence[Measurement], x: int, y: int, title: str) -> list[str]:
    parts = [
        f'<text x="{x}" y="{y - 6}" font-weight="bold">{escape(title)}</text>',
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>',
    ]
    if not rows:
        return parts
    top = max(row.gigabytes_per_second for row in rows) * 1.05
    sizes = sorted({row.fragment_bytes for row in rows})
    low, span = math.log2(sizes[0]), max(math.log2(sizes[-1]) - math.log2(sizes[0]), 1.0)

    def across(fragment: int) -> float:
        return x + 10 + (WIDTH - 20) * (math.log2(fragment) - low) / span

    def upwards(rate: float) -> float:
        return y + HEIGHT * (1 - rate / top)

    for size in sizes:
        parts.append(
            f'<text x="{across(size):.1f}" y="{y + HEIGHT + 14}" text-anchor="middle" font-size="9">'
            f"{size_text(size)}</text>"
        )
    for share in (0, 0.25, 0.5, 0.75):
        level = upwards(top * share)
        parts.append(f'<line x1="{x}" y1="{level:.1f}" x2="{x + WIDTH}" y2="{level:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 4}" y="{level + 4:.1f}" text-anchor="end">{top * share:.3g}</text>')
    parts.append(f'<text x="{x - 4}" y="{y + 8}" text-anchor="end">GB/s</text>')
    for method, colour in COLOURS.items():
        points = sorted((row.fragment_bytes, row.gigabytes_per_second) for row in rows if row.method is method)
        line = " ".join(f"{across(fragment):.1f},{upwards(rate):.1f}" for fragment, rate in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts
