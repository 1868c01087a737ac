#!/usr/bin/env python3
"""The rules of windows a second time, in plain Python, to hold another system's answers against.

It shares no code with the program and takes no care to be fast: a click at a time, everything in
lists. Run with a file of answers (answers.jsonl, or what flink_windows.py prints) it says which of
them the rules would not give:

    python3 model.py answers.jsonl
"""

import json
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict

END_OF_INPUT = -1  # in place of the click after which something was emitted


class Log(TypedDict):
    """Clicks in order of arrival and how they are counted; lengths that a kind lacks are 0."""

    kind: str
    size_ms: int
    slide_ms: int
    gap_ms: int
    delay_ms: int
    lateness_ms: int
    clicks: list[tuple[int, str]]  # time, page


class Outcome(TypedDict):
    """What came out; windows are start, end, page, count."""

    final: list[tuple[int, int, str, int]]
    dropped: list[int]  # clicks counted in no window
    partly_too_late: list[tuple[int, int, int]]  # click, start and end of a window that it missed
    # A peer that emits by another rule lacks these. Within one click sorted by window.
    emissions: NotRequired[list[tuple[int, int, str, int]]]
    emitted_after: NotRequired[list[int]]  # for each emission the click that caused it


class Answer(Log, Outcome):
    """A log and what a peer made of it."""

    peer_gap_ms: NotRequired[int]  # where the peer was given another gap, see flink_windows.py


@dataclass
class Window:
    start: int
    end: int
    page: str
    clicks: list[int] = field(default_factory=list)
    fired: bool = False

    def shown(self) -> tuple[int, int, str, int]:
        return self.start, self.end, self.page, len(self.clicks)


def aligned(at: int, size: int, slide: int) -> list[tuple[int, int]]:
    """The windows that hold a time; Python's // rounds down below zero too."""
    newest = at // slide * slide
    return [(start, start + size) for start in range(newest, at - size, -slide)]


def count(log: Log) -> tuple[Outcome, list[str]]:
    """Counts as a stream does, click by click; also gives each click's status."""
    lateness, gap = log["lateness_ms"], log["gap_ms"]
    tumbling, session = log["kind"] == "tumbling", log["kind"] == "session"
    slide = log["size_ms"] if tumbling else log["slide_ms"]
    watermark: float = float("-inf")
    windows: list[Window] = []
    statuses: list[str] = []
    dropped: list[int] = []
    missed: list[tuple[int, int, int]] = []
    emitted: list[tuple[int, tuple[int, int, str, int]]] = []

    for index, (at, page) in enumerate(log["clicks"]):
        late, touched, lost = False, [], []
        if session:
            own = Window(at, at + gap, page, [index])
            if own.end + lateness > watermark:
                parts = [
                    w
                    for w in windows
                    if w.page == page
                    and w.start < own.end
                    and own.start < w.end
                    and w.end + gap + lateness > watermark
                ]
                late = own.end <= watermark or any(w.fired for w in parts)
                windows = [w for w in windows if w not in parts]
                for part in parts:
                    own.start, own.end = min(own.start, part.start), max(own.end, part.end)
                    own.clicks += part.clicks
                    own.fired = own.fired or part.fired
                windows.append(own)
                touched.append(own)
        else:
            for start, end in aligned(at, log["size_ms"], slide):
                if end + lateness <= watermark:
                    lost.append((index, start, end))
                    continue
                same = [w for w in windows if (w.start, w.end, w.page) == (start, end, page)]
                window = same[0] if same else Window(start, end, page)
                if not same:
                    windows.append(window)
                window.clicks.append(index)
                late = late or end <= watermark
                touched.append(window)
        if touched:
            missed += sorted(lost)
        else:
            dropped.append(index)
        statuses.append("dropped" if not touched else "late" if late else "on_time")
        emitted += [(index, window.shown()) for window in touched if window.fired]
        watermark = max(watermark, at - log["delay_ms"])
        for window in windows:
            if not window.fired and window.end <= watermark:
                window.fired = True
                emitted.append((index, window.shown()))
    emitted += [(END_OF_INPUT, w.shown()) for w in windows if not w.fired]
    emitted.sort(key=lambda e: (e[0] == END_OF_INPUT, *e))

    outcome: Outcome = {
        "final": sorted(w.shown() for w in windows),
        "dropped": dropped,
        "partly_too_late": missed,
        "emissions": [window for _, window in emitted],
        "emitted_after": [after for after, _ in emitted],
    }
    return outcome, statuses


def count_at_rest(log: Log) -> list[tuple[int, int, str, int]]:
    """The final counts from the kept log alone: each click and the watermark before it."""
    counts: dict[tuple[int, int, str], int] = defaultdict(int)
    kept: dict[str, list[int]] = defaultdict(list)
    before: float = float("-inf")
    size, gap, lateness = log["size_ms"], log["gap_ms"], log["lateness_ms"]
    for at, page in log["clicks"]:
        if log["kind"] == "session":
            if at + gap + lateness > before:
                kept[page].append(at)
        else:
            slide = log["size_ms"] if log["kind"] == "tumbling" else log["slide_ms"]
            for start, end in aligned(at, size, slide):
                if end + lateness > before:
                    counts[start, end, page] += 1
        before = max(before, at - log["delay_ms"])
    for page, times in kept.items():
        times.sort()
        while times:
            n = 1
            while n < len(times) and times[n] - times[n - 1] < gap:
                n += 1
            counts[times[0], times[n - 1] + gap, page] = n
            del times[:n]
    return sorted((start, end, page, n) for (start, end, page), n in counts.items())


def disagreements(peer: Answer) -> list[str]:
    """In what the peer's answer differs from the rules; empty if in nothing."""
    ours, _ = count(peer)
    pairs: list[tuple[str, object, object]] = [
        ("final", peer["final"], ours["final"]),
        ("final, from the log at rest", peer["final"], count_at_rest(peer)),
        ("dropped", peer["dropped"], ours["dropped"]),
        ("partly_too_late", peer["partly_too_late"], ours["partly_too_late"]),
    ]
    if "emissions" in peer:
        pairs.append(("emissions", peer["emissions"], ours["emissions"]))
        pairs.append(("emitted_after", peer["emitted_after"], ours["emitted_after"]))
    return [
        f"{what}: peer {theirs}, rules {own}" for what, theirs, own in pairs if plain(theirs) != plain(own)
    ]


def plain(value: object) -> object:
    """Tuples and lists are the same thing in JSON."""
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def main() -> int:
    wrong = answers = 0
    with Path(sys.argv[1]).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if "clicks" not in (answer := json.loads(line)):
                continue  # the header
            answers += 1
            if found := disagreements(answer):
                wrong += 1
                print(f"line {number}: " + "; ".join(found))
    print(f"{answers} answers, {wrong} not as the rules have it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
