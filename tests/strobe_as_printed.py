"""C-Strobe with line 16 as the paper prints it, to show where that is wrong (`compensated`)."""

from __future__ import annotations

from streaming.algebra.bag import Numbered
from streaming.viewmanagers.asking.c_strobe import CStrobe
from streaming.viewmanagers.asking.holding_queue import numbers_in


class AsPrinted(CStrobe[Numbered]):
    """Line 16 on projected attributes; `condition` can be made to look at all of them."""

    condition_on_all = False

    def settled(self, i: int) -> Numbered:
        delta, ops = self.families.pop(i).delta, self.operators
        for place, key in enumerate(self.keys.places):
            shown = tuple(column for column, _ in key.shown)
            at = tuple(self.psj.starts[place] + column for column in shown)
            every = tuple(range(len(self.psj.leaves[place].schema)))
            compared = every if self.condition_on_all else shown
            deleted: Numbered = {}
            changes = [one.change for one in self.queue.held if place in one.change.deltas]
            for change in changes:
                rows = change.deltas[place]
                for number in numbers_in(ops, rows, change.first, change.last):
                    now = ops.between(rows, number, number)
                    new = ops.inserted(now)
                    new = ops.minus(new, ops.matching(new, compared, deleted, compared))
                    delta = ops.minus(delta, ops.matching(delta, at, new, shown))
                    deleted = ops.plus(deleted, ops.deleted(now))
        return delta


class ConditionOnAll(AsPrinted):
    condition_on_all = True
