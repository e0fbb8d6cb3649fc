"""Global-Strobe (strobe-family 6.2): T-Strobe that waits for whole global transactions.

For an integrator that numbers the parts of a global transaction apart (`Updates.parts`). TT are the
global transactions of which a part has been received since MV last changed. MV changes when

1. UQS is empty;
2. with a transaction in TT, those that it depends on are in TT: numbers are given in each source's
   commit order and come in order, so this always holds;
3. all updates of the transactions in TT have been received and processed: their parts are counted.

A part that changes nothing in the view counts too: a transaction may depend on another one by such a
part alone (an update of a row to itself), and would else be shown without it. REL says so: a part is
work for every view of the group (`integrator.relevance`), so lists cover all parts and the views of a
group pass a global transaction at once.

Without parts it is T-Strobe.

A part is processed at its own number like a local transaction, as G-Strobe is "the same as T-Strobe
except that it only updates MV when". Example 4's holding queue, which keeps a part back until the others
arrive, is wrong once a later transaction of the same source touches the same key: with g's part
U_1 = delete(r, [1,2]), then U_2 = insert(r, [1,3]), then g's other part, U_1 processed last deletes
[1,3] by key. (It would be right if it held everything later of that source as well.)

A global transaction whose parts lie on both sides of a cut: MV may not change at that cut, so the gate
stays open there and the list goes across it. A group with such a manager runs PA, and its merge must
take lists over cuts. Where some global transaction straddles every cut, MV never changes; numbering
them whole ("joined") has neither trouble, and this is T-Strobe then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.source_queries import Query
from streaming.algebra.view_keys import Keys
from streaming.errors import ProtocolError
from streaming.messages import ActionList, Updates
from streaming.viewmanagers.asking.holding_queue import HeldMessage
from streaming.viewmanagers.asking.strobe import Strobe
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import Mirror

V = TypeVar("V")


@dataclass
class OpenGlobal:
    """A global transaction of which a part has been received, and not all processed.

    Attributes:
        parts: how many it has.
        received, processed: how many of them.
    """

    parts: int
    received: int = 0
    processed: int = 0


class GStrobe(Strobe[V], Generic[V]):
    """One view's manager; the arguments are Strobe's."""

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        keys: Keys,
        mirror: Mirror[V] | None = None,
        from_view: bool = False,
        grouped: bool = True,
        gate: bool = True,
        window: int = 1,
    ) -> None:
        super().__init__(spec, operators, keys, mirror, from_view, grouped, gate, window)
        self.globals: dict[str, OpenGlobal] = {}
        self.noted = self.progress.number
        """The last number whose part is counted as processed."""

    @property
    def tt(self) -> dict[str, int]:
        """What condition 3 waits for: the parts still to come of the transactions in TT, by id."""
        return {id_: g.parts - g.processed for id_, g in self.globals.items() if g.processed}

    def receive(self, updates: Updates) -> list[Query[V] | ActionList]:
        self._check_parts(updates)
        return super().receive(updates)

    def hold(self, updates: Updates) -> None:
        super().hold(updates)
        for part in updates.parts:
            self.globals.setdefault(part.id, OpenGlobal(part.parts)).received += 1

    def may_apply(self) -> bool:
        """Conditions 1 and 3."""
        return super().may_apply() and not self.tt

    def _closed(self) -> bool:
        """MV cannot change at this cut while a part is missing, so there is nothing to wait for."""
        return super()._closed() and not self.tt

    def _note(self, held: HeldMessage[V], number: int) -> None:
        for part in held.parts:
            if self.noted < part.number <= number:
                known = self.globals[part.id]
                known.processed += 1
                if known.processed == known.parts:
                    del self.globals[part.id]
        self.noted = number

    def _check_parts(self, updates: Updates) -> None:
        """Raise unless the parts are of this message and no more than announced.

        Raises:
            ProtocolError: a rule is broken.
        """
        brief = f"updates of {updates.group} [{updates.first}..{updates.last}]"

        def broken(rule: str) -> ProtocolError:
            return ProtocolError("view_manager", brief, f"view {self.spec.view}: {rule}")

        sizes = {id_: known.parts for id_, known in self.globals.items()}
        counts = Counter({id_: known.received for id_, known in self.globals.items()})
        before = updates.first - 1
        for part in updates.parts:
            if not before < part.number <= updates.last:
                raise broken(f"part {part.number} of {part.id!r} is not of this message, in order")
            before = part.number
            counts[part.id] += 1
            if sizes.setdefault(part.id, part.parts) != part.parts or counts[part.id] > part.parts:
                raise broken(
                    f"{part.id!r} has {sizes[part.id]} parts; {part.number} is one too many"
                )

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        notes = {id_: [g.parts, g.received, g.processed] for id_, g in self.globals.items()}
        return {**super().snapshot(), "globals": notes, "noted": self.noted}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described.

        Raises:
            ProtocolError: a snapshot of another view.
        """
        super().restore(saved)
        self.globals = {id_: OpenGlobal(*note) for id_, note in saved["globals"].items()}
        self.noted = saved["noted"]
