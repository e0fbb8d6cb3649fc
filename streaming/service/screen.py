"""The consoles of all commands: what is printed is text, unless it says that it is more.

Rich would read `[red]` in a name as its own markup and hand escape sequences on. Here strings are no
markup, and every segment that is written is plain; what is styled is a `Text`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from streaming.plain import plain_lines


class Screen(Console):
    """A console that writes nothing a terminal would act on but its own styles."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments, plain; rich's own controls (a cursor it moves, a line it clears) as they are."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(plain_lines(segment.text), segment.style)
