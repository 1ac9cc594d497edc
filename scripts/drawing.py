"""What the pictures of docs are made of: boxes, labels and arrows in SVG, in the colours of light and dark pages.

A picture asks for no font, style or script from elsewhere. It paints its own background, so it stays legible in a
reader that shows it on a page of other colours.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

FONT = "'DejaVu Sans', 'Bitstream Vera Sans', 'Lucida Grande', Verdana, Arial, sans-serif"
Palette = dict[str, str | tuple[str, str]]

LIGHT: Palette = {
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "faint": "#57606a",
    "box": ("#dbe9f4", "#1f77b4"),
    "settled": ("#d3efd9", "#2c8a4b"),
    "open": ("#fde9c9", "#b8730a"),
    "outside": ("#ffffff", "#8c959f"),
}
"""Colours by the class of what has them; a box has one inside and one at its edge."""
DARK: Palette = {
    "paper": "#131416",
    "ink": "#e6e8ea",
    "faint": "#a9b1ba",
    "box": ("#16304a", "#58a6e6"),
    "settled": ("#12381f", "#4fbf74"),
    "open": ("#47340f", "#e0a340"),
    "outside": ("#131416", "#7d8590"),
}
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="head" d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>'
)

Place = tuple[float, float, float, float]
"""Left, top, width and height of a box."""


def svg(wide: float, high: float, parts: Iterable[str], *, size: int, title: str) -> str:
    """Returns a picture.

    Args:
        size: of the text, in pixels.
        title: what a screen reader says.
    """
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" '
        f'width="{wide:g}" height="{high:g}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{_style(size)}</style>\n{HEAD}\n"
        f'<path class="paper" d="M 0 0 H {wide:g} V {high:g} H 0 z"/>\n{body}\n</svg>\n'
    )


def _style(size: int) -> str:
    drawn = (
        f"text {{font: {size}px {FONT}}} .name {{font-size: {size + 2}px; font-weight: bold}} "
        ".middle {text-anchor: middle} .arrow, .line {fill: none} .arrow {marker-end: url(#head)} "
        ".outside {stroke-dasharray: 4 3}"
    )
    dark = f"@media (prefers-color-scheme: dark) {{{_colours(DARK)}}}"
    return f"\n{drawn}\n{_colours(LIGHT)}\n{dark}\n"


def _colours(palette: Palette) -> str:
    boxes = (
        f".{name} {{fill: {colour[0]}; stroke: {colour[1]}}}"
        for name, colour in palette.items()
        if isinstance(colour, tuple)
    )
    return (
        f".paper {{fill: {palette['paper']}}} text {{fill: {palette['ink']}}} "
        f".faint {{fill: {palette['faint']}}} .head {{fill: {palette['faint']}}} "
        f".arrow, .line {{stroke: {palette['faint']}}} {' '.join(boxes)}"
    )


def rect(place: Place, kind: str = "box") -> str:
    """Returns a box without a text; its kind is a key of the colours."""
    left, top, wide, high = place
    size = f'width="{wide:g}" height="{high:g}"'
    return f'<rect class="{kind}" x="{left:g}" y="{top:g}" {size} rx="3"/>'


def cell(place: Place, text: str, kind: str = "box") -> str:
    """Returns a box with a text in its middle."""
    left, top, wide, high = place
    middle = label(left + wide / 2, top + high / 2 + 4.5, text, "middle")
    return f"{rect(place, kind)}\n{middle}"


def label(left: float, line: float, text: str, kind: str = "") -> str:
    """Returns a line of text; its kind may be several classes."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{left:g}" y="{line:g}"{named}>{escape(text)}</text>'


def arrow(left: float, top: float, to_left: float, to_top: float) -> str:
    """Returns a line with a head at its end."""
    return f'<path class="arrow" d="M {left:g} {top:g} L {to_left:g} {to_top:g}"/>'


def bracket(left: float, right: float, line: float) -> str:
    """Returns a line below something, with its ends turned up."""
    return f'<path class="line" d="M {left:g} {line - 5:g} V {line:g} H {right:g} V {line - 5:g}"/>'
