"""A small writer of SVG pictures that are legible on light and dark pages."""

from __future__ import annotations

from xml.sax.saxutils import escape

# The colours of Okabe and Ito, which colour-blind people can distinguish, and lighter ones for dark pages; each with a
# marker.
COLOURS = (
    ("#D55E00", "#FF8A3D", "M-3,0A3,3 0 1 0 3,0A3,3 0 1 0-3,0"),
    ("#0072B2", "#4DA3E0", "M-2.7-2.7H2.7V2.7H-2.7z"),
    ("#009E73", "#2CC79A", "M0-3.4L3.4,3H-3.4z"),
    ("#CC79A7", "#E29BC6", "M0-3.6L3.6,0L0,3.6L-3.6,0z"),
    ("#B37400", "#F0B840", "M0,3.4L3.4-3H-3.4z"),
    ("#56B4E9", "#8AD0F5", "M-3-1H-1V-3H1V-1H3V1H1V3H-1V1H-3z"),
    ("#000000", "#FFFFFF", "M-3-3L3,3M-3,3L3-3"),
    ("#7F7F7F", "#A6A6A6", "M-3.4,0H3.4M0-3.4V3.4"),
)
_LIGHT = {"paper": "#fff", "ink": "#1f2328", "faint": "#59636e", "grid": "#d8dee4"}
_DARK = {"paper": "#0d1117", "ink": "#e6edf3", "faint": "#9198a1", "grid": "#30363d"}


def number(value: float) -> str:
    """With one decimal, or none if that is 0."""
    return f"{value:.1f}".removesuffix(".0")


def points(of: list[tuple[float, float]]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in of)


class Picture:
    """Elements that share a style sheet. Classes: s0 to s7 draw lines in the colours of a series, f0 to f7 fill with
    them, d is dashed, m and e align text at its middle and end, t is a title, n a note, g a line of the grid."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._elements: list[str] = []
        self._used: set[int] = set()

    def add(self, element: str) -> None:
        self._elements.append(element)

    def text(self, x: float, y: float, words: str, kind: str = "", turned: bool = False) -> None:
        place = f'x="{number(x)}" y="{number(y)}"'
        if turned:
            place = f'transform="translate({number(x)} {number(y)})rotate(-90)"'
        self.add(f"<text {_class(kind)}{place}>{escape(words)}</text>")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.add(f'<path {_class(kind)}d="M{number(x1)},{number(y1)}L{number(x2)},{number(y2)}"/>')

    def curve(self, of: list[tuple[float, float]], series: int, kind: str = "") -> None:
        self._used.add(series)
        self.add(f'<polyline class="{f"s{series} {kind}".strip()}" points="{points(of)}"/>')

    def bar(self, x: float, y: float, width: float, height: float, series: int) -> None:
        box = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self.add(f'<rect class="f{series}" {box} rx="2"/>')

    def __str__(self) -> str:
        width, height = number(self.width), number(self.height)
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
        markers = [_marker(series) for series in sorted(self._used)]
        defs = [f"<defs>{''.join(markers)}</defs>"] if markers else []
        style = f"<style>{_rules(_LIGHT, 0)}{_SHAPES}@media(prefers-color-scheme:dark){{{_rules(_DARK, 1)}}}</style>"
        paper = '<rect class="p" width="100%" height="100%" rx="6"/>'
        return "\n".join([head, style, *defs, paper, *self._elements, "</svg>", ""])


def _class(kind: str) -> str:
    return f'class="{kind}" ' if kind else ""


def _marker(series: int) -> str:
    box = 'viewBox="-4 -4 8 8" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"'
    return f'<marker id="m{series}" {box}><path class="f{series}" d="{COLOURS[series][2]}"/></marker>'


_SHAPES = (
    "text{font:12px system-ui,sans-serif}.t{font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}"
    "polyline{fill:none;stroke-width:1.5}.w{stroke-width:2.6}.d{stroke-dasharray:5 3}"
    + "".join(f".s{i}{{marker:url(#m{i})}}" for i in range(len(COLOURS)))
)


def _rules(theme: dict[str, str], which: int) -> str:
    colours = "".join(
        f".s{i}{{stroke:{of[which]}}}.f{i}{{fill:{of[which]};stroke:{of[which]}}}" for i, of in enumerate(COLOURS)
    )
    return (
        f".p{{fill:{theme['paper']}}}text{{fill:{theme['ink']}}}.n{{fill:{theme['faint']}}}"
        f".g{{stroke:{theme['grid']}}}.r{{stroke:{theme['faint']}}}{colours}"
    )
