"""Who gets which row: second opinions, rows of the audit, rows that teach the model most, or rows at random."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from surefoot.pool.labeling import events as e
from surefoot.pool.labeling.book import OPEN, Book
from surefoot.pool.labeling.events import Event
from surefoot.pool.labeling.learning import Ranking
from surefoot.pool.labeling.turns import AUDITING, Turns

# Rows of the audit that are looked at beyond those recorded, to find one that nobody holds.
_LOOK_AHEAD = 64
# Rows that are tried, drawn from all, before the open ones are listed.
_TRIES = 64


def is_shared(row: int, overlap: float, seed: int) -> bool:
    """Whether a row is one of those that two people label: a fixed sample, by a hash of its number."""
    digest = hashlib.sha256(f"{seed}:{row}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < overlap * 2**64


class Chooser:
    """Chooses rows. A row that someone has held longer than `lease` seconds may go to another.

    Parameters
    ----------
    book : Book
    turns : Turns
    random_first : int, random labels before rows are picked by the model.
    seed : int
    lease : float, seconds
    """

    def __init__(self, book: Book, turns: Turns, *, random_first: int, seed: int, lease: float = 600.0) -> None:
        self._book, self._turns = book, turns
        self._random_first, self._seed, self._lease = random_first, seed, lease

    def choose(
        self, person: int, n: int, ranking: Ranking | None, now: float, *, without: frozenset[int] = frozenset()
    ) -> list[Event]:
        """Up to n rows for a person, as picks to be stored."""
        picks: list[Event] = []
        if n <= 0:
            return picks
        taken = set(without)
        for pick in self._candidates(person, ranking, now, taken):
            if pick.row not in taken:
                picks.append(pick)
                taken.add(pick.row)
            if len(picks) == n:
                break
        return picks

    def _candidates(self, person: int, ranking: Ranking | None, now: float, taken: set[int]) -> Iterator[Event]:
        yield from self._second_opinions(person, now)
        if self._turns.phase == AUDITING:
            yield from self._audit_rows(person, now)
        if ranking is not None and self._n_drawn() >= self._random_first:
            for row in ranking.rows:
                if self._book.is_untouched(row):
                    yield Event(e.PICK, row, person, purpose=e.LEARN)
        yield from self._random_rows(person, taken, now)

    def _second_opinions(self, person: int, now: float) -> Iterator[Event]:
        for row in self._book.awaiting:
            if person not in self._book.rows[row].answers and self._is_free(row, person, now):
                yield Event(e.PICK, row, person, purpose=e.SECOND)

    def _audit_rows(self, person: int, now: float) -> Iterator[Event]:
        proof = self._turns.proof
        if proof is None:
            return
        for place in range(len(proof.recorded), len(proof.recorded) + _LOOK_AHEAD):
            if len(proof.draw(place + 1)) <= place:
                return
            row = proof.order[place]
            if self._book.row(row).state == OPEN and self._is_free(row, person, now):
                probability = proof.probabilities[place]
                yield Event(e.PICK, row, person, purpose=e.AUDIT, probability=probability, audit=proof.number)

    def _random_rows(self, person: int, taken: set[int], now: float) -> Iterator[Event]:
        """Rows drawn one after another, uniformly, from those that are open; then from those held for too long."""
        book, rng = self._book, np.random.default_rng([self._seed, len(self._book.events), person])
        gone = {row for row in taken if book.is_untouched(row)}
        while (n := book.n_open - len(gone)) > 0:
            row = self._draw_open(rng, gone)
            gone.add(row)
            yield Event(e.PICK, row, person, purpose=e.RANDOM, probability=1.0 / n)
        stale = [row for row in list(book.holders) if self._is_free(row, person, now) and row not in taken]
        rows = np.array([row for row in stale if not book.row(row).answers], dtype=np.intp)
        for place, row in enumerate(rng.permutation(rows).tolist()):
            yield Event(e.PICK, row, person, purpose=e.RANDOM, probability=1.0 / (len(rows) - place))

    def _draw_open(self, rng: np.random.Generator, gone: set[int]) -> int:
        """One of the open rows but for those gone, each with the same chance; fast where many are."""
        book = self._book
        for _ in range(_TRIES):
            row = int(rng.integers(book.n_rows))
            if book.is_untouched(row) and row not in gone:
                return row
        rows = [row for row in book.open_rows().tolist() if row not in gone]
        return int(rows[int(rng.integers(len(rows)))])

    def _is_free(self, row: int, person: int, now: float) -> bool:
        """Whether nobody else holds a row, or has for too long."""
        holder = self._book.holders.get(row)
        if holder is None:
            return True
        if holder == person:
            return False
        return now - self._book.held[holder][row].since > self._lease

    def _n_drawn(self) -> int:
        """Random labels that are there or on their way."""
        return len(self._book.drawn) + sum(
            pick.purpose == e.RANDOM for held in self._book.held.values() for pick in held.values()
        )
