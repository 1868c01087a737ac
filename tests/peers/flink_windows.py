#!/usr/bin/env python3
"""Asks Apache Flink to count random logs of clicks, for comparison with the engine.

Draws logs from a seed, runs them through Flink's own tumbling, sliding and session windows
(FlinkWindows.java, compiled here), and prints one JSON object a line: the log and Flink's answer,
in the form of `Answer` in model.py.

    python3 -m venv peers
    peers/bin/pip install setuptools wheel
    peers/bin/pip install --no-deps --no-build-isolation apache-flink-libraries==2.3.0
    peers/bin/python flink_windows.py > all.jsonl       # a JDK, 17 or newer, must be on the PATH
    peers/bin/python flink_windows.py --check           # compares with model.py instead
    peers/bin/python flink_windows.py --check --keep answers.jsonl

(`apache-flink-libraries` is only Flink's jars; with `--jars` those of any distribution do.)

How Flink is set up. A watermark after every click: greatest time seen - delay - 1, for Flink's says
"nothing more up to and including", ours "nothing more before". So Flink fires a window once
`end - 1 <= watermark - 1` and gives it up once `end - 1 + lateness <= watermark - 1`, which are our
conditions. Contents accumulate; what is in no window at all goes to the late side output. Parallelism
1, so that clicks stay in order. One job takes many logs with the same windows, one after another in
time and 5 s apart, and between two of them a click that is part of neither moves the watermark far
enough to fire all of the first: that is the end of its input. No time is moved there and back: the
times in an answer are those which Flink saw, most before 1970 or around it.

What is read from it. For every firing Flink tells the clicks in the window and its watermark. The
click that caused the firing is the first that brought the watermark there, or the window's last
click, if that came later (a correction). Flink does not order firings of the same moment, so they
are sorted by window. `partly_too_late` are the windows that hold a click's time while Flink never
showed the click in them. A session's older versions, whose clicks are in a newer one, are no result.

Where the rules differ. For tumbling and sliding windows: nowhere in what is compared, so all logs
are taken as drawn. (Flink has no status for a click; a window made by a late click it fires with the
click, we with the watermark after it, which is the same moment here.) For sessions:

  * Flink merges sessions that touch, we only those that overlap. In whole milliseconds Flink's rule
    with a gap one shorter is ours. So half of the session jobs have no two clicks of a page exactly a
    gap apart; the other half have, and Flink is given gap - 1 and a watermark one lower, and its ends
    are read as one later. With that its conditions are again ours, by the same sum as above. These
    answers say so: `peer_gap_ms`.
  * Flink judges a click by the end of the session that it would join, we by its own [at, at + gap).
  * Flink forgets a session at end + lateness, we a gap later.
  * Flink fires a session again only when the watermark passes its new end, we correct it at once.

`rules_agree` says for which logs that makes no difference; sessions are drawn so that it holds, and
emissions are given only where it holds for them as well. It looks at a log, never at an answer.
"""

import argparse
import importlib.util
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from model import END_OF_INPUT, Answer, Log, aligned, count, disagreements

HERE = Path(__file__).parent
LOGS_IN_A_JOB = 20
APART = 5_000  # ms between the beginnings of two logs of a job
NOW = 1_700_000_000_000
LONG_AGO = -1_000_000_000_000


def watermarks(log: Log) -> list[int]:
    """The watermark after each click."""
    out: list[int] = []
    for at, _ in log["clicks"]:
        out.append(max([at - log["delay_ms"], *out[-1:]]))
    return out


def rules_agree(log: Log, slack: int, shorter: int) -> bool:
    """Whether the rules of sessions, Flink's and ours, come to the same for this log.

    `shorter` is by how much Flink's gap is shorter than ours, 0 or 1. Call E a click's own end,
    at + gap, W the watermark before a click, and a click kept if E + lateness > W. Asked is that of
    each click and each earlier kept one of its page, if they are less than a gap apart, both have
    E + slack > W, W being that before the later one; and, if Flink's gap is ours, that they are not
    exactly a gap apart, for then Flink would merge them and we would not.

    With slack = lateness: to meet a session, with us or in Flink, is then to be less than a gap from
    one of its clicks. So a click with E + lateness <= W, which we drop, meets no session; Flink
    judges it by itself and drops it too. A click that we keep meets only sessions with a click whose
    E + lateness > W; Flink has not forgotten them and merges it with the same ones as we do, and the
    merged end is late for neither. And no session that Flink has forgotten is met again. So the same
    clicks are dropped, and the rest is in the same sessions.

    With slack = 0 moreover no click meets a session that has fired, so each session fires once, at the
    same moment: the emissions are the same.
    """
    clicks, gap = log["clicks"], log["gap_ms"]
    kept: list[tuple[int, str]] = []
    before: float = float("-inf")
    for (at, page), after in zip(clicks, watermarks(log), strict=True):
        for other, its_page in kept:
            distance = abs(at - other) if page == its_page else gap + 1
            if distance < gap and min(at, other) + gap + slack <= before:
                return False
            if distance == gap and not shorter:
                return False
        if at + gap + log["lateness_ms"] > before:
            kept.append((at, page))
        before = after
    return True


def draw_time(rng: random.Random, log: Log, style: "Style", greatest: int) -> int:
    """The next click's time: a step ahead, a step back, or where a rule's comparison tips over."""
    length = log["gap_ms"] or log["size_ms"]
    grid = log["slide_ms"] or length
    tip = rng.randint(-1, 1)
    match rng.choices(("ahead", "back", "tip ahead", "tip back", "edge"), style.weights)[0]:
        case "back":
            return greatest - rng.randint(0, style.reach)
        case "tip ahead":  # so that the watermark reaches, or just misses, an end or an end + lateness
            end = greatest // grid * grid + length
            if log["kind"] == "session" and log["clicks"]:
                end = rng.choice(log["clicks"])[0] + length
            return end + rng.choice((0, log["lateness_ms"])) + log["delay_ms"] + tip
        case "tip back":  # to windows that are just closing
            at = greatest - log["delay_ms"] - rng.choice((0, log["lateness_ms"]))
            return at - rng.choice((0, length)) + tip
        case "edge":
            return (greatest + rng.randint(-style.reach, style.pace)) // grid * grid
    return greatest + rng.randint(0, style.pace)


@dataclass
class Style:
    """How a log is drawn."""

    pace: int
    reach: int
    weights: tuple[int, int, int, int, int]


def draw_log(rng: random.Random, windows: Log, base: int, shorter: int) -> Log:
    """A log around `base`, of 0 to 30 clicks; in sessions a click that breaks `rules_agree` is redrawn."""
    delay, lateness = rng.randint(0, 20), windows["lateness_ms"]
    length = windows["gap_ms"] or windows["size_ms"]
    style = Style(
        pace=rng.choice((2, 6, 15, 40)),
        reach=rng.choice((delay + 1, delay + length, delay + length + lateness + 10)),
        weights=rng.choice(((8, 1, 0, 0, 0), (5, 3, 1, 1, 1), (3, 3, 2, 2, 1), (3, 6, 1, 2, 1))),
    )
    pages = "abc"[: rng.randint(1, 3)]
    log: Log = {**windows, "delay_ms": delay, "clicks": []}
    greatest = base + rng.randint(-60, 10)
    for _ in range(rng.randint(0, 30)):
        for _ in range(50):
            click = draw_time(rng, log, style, greatest), rng.choice(pages)
            longer: Log = {**log, "clicks": [*log["clicks"], click]}
            if log["kind"] != "session" or rules_agree(longer, lateness, shorter):
                log, greatest = longer, max(greatest, click[0])
                break
    # What the next log is told of this one, and this one of the one before, must be nothing.
    assert all(abs(at - base) < APART // 2 - 200 for at, _ in log["clicks"])
    return log


@dataclass
class Job:
    """Logs with the same windows and lateness, in order of time."""

    windows: Log
    base: int
    shorter: int  # by how much the gap that Flink gets is shorter, and its watermark lower
    logs: list[Log] = field(default_factory=list)

    def flush(self, place: int) -> int:
        """The time of the click after a log which ends its input."""
        return self.base + place * APART + APART // 2


def draw_jobs(rng: random.Random, kind: str, logs: int) -> Iterator[Job]:
    while logs > 0:
        size = rng.randint(1, 30)
        windows: Log = {
            "kind": kind,
            "size_ms": 0 if kind == "session" else size,
            "slide_ms": rng.randint(1, size) if kind == "sliding" else 0,
            "gap_ms": size if kind == "session" else 0,
            "delay_ms": 0,
            "lateness_ms": rng.choice((0, rng.randint(0, 10), rng.randint(0, 40))),
            "clicks": [],
        }
        here = min(logs, LOGS_IN_A_JOB)
        base = rng.choice((0, 0, 0, NOW, LONG_AGO)) - here * 2 // 3 * APART
        shorter = rng.randint(0, 1) if windows["gap_ms"] > 1 else 0
        job = Job(windows, base, shorter)
        job.logs = [draw_log(rng, windows, base + place * APART, shorter) for place in range(here)]
        logs -= here
        yield job


def run_flink(jobs: list[Job], jars: Path) -> list[list[str]]:
    """The lines that FlinkWindows.java prints, as fields; logs numbered through all jobs."""
    lines: list[str] = []
    number = 0
    for job in jobs:
        w = job.windows
        lengths = (w["size_ms"], w["slide_ms"], w["gap_ms"] - job.shorter, w["lateness_ms"])
        lines.append("\t".join(("job", w["kind"], *map(str, lengths))))
        for place, log in enumerate(job.logs):
            for index, (at, page) in enumerate(log["clicks"]):
                lines.append(f"{number}\t{index}\t{at}\t{page}\t{log['delay_ms'] + job.shorter}")
            lines.append(f"{number}\t-1\t{job.flush(place)}\t\t{job.shorter}")
            number += 1
    with tempfile.TemporaryDirectory() as classes:
        source = str(HERE / "FlinkWindows.java")
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", classes, source], check=True)
        java = ["java", "-cp", f"{classes}:{jars}/*", "FlinkWindows"]
        text = "".join(line + "\n" for line in lines)
        done = subprocess.run(java, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def read_answer(log: Log, flush: int, shorter: int, fields: list[list[str]]) -> Answer:
    """Flink's lines about one log, as an answer; `flush` is the time of the click that ended its input."""
    reached: dict[int, int] = {flush: END_OF_INPUT}  # by our watermark
    for index, reaches in enumerate(watermarks(log)):
        reached.setdefault(reaches, index)
    emitted: list[tuple[int, tuple[int, int, str, int]]] = []
    current: dict[tuple[int, int, str], set[int]] = {}
    for _, _, page, start, stop, watermark, indices in (f for f in fields if f[0] == "fired"):
        held = set(map(int, indices.split(",")))
        after = reached[int(watermark) + 1 + shorter]
        after = after if after == END_OF_INPUT else max(after, *held)
        window = int(start), int(stop) + shorter, page
        emitted.append((after, (*window, len(held))))
        if log["kind"] == "session":
            current = {w: clicks for w, clicks in current.items() if not clicks & held}
        current[window] = held
    emitted.sort(key=lambda e: (e[0] == END_OF_INPUT, *e))

    counted: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for (first, stop_at, _), clicks in current.items():
        for index in clicks:
            counted[index].add((first, stop_at))
    dropped = sorted(int(f[2]) for f in fields if f[0] == "dropped")
    assert set(dropped) == set(range(len(log["clicks"]))) - set(counted), "side output, windows"
    missed: list[tuple[int, int, int]] = []
    if log["kind"] == "sliding":
        for index, held_by in sorted(counted.items()):
            holding = aligned(log["clicks"][index][0], log["size_ms"], log["slide_ms"])
            missed += [(index, *window) for window in sorted(holding) if window not in held_by]
    answer: Answer = {
        **log,
        "final": sorted((*window, len(clicks)) for window, clicks in current.items()),
        "dropped": dropped,
        "partly_too_late": missed,
        "emissions": [window for _, window in emitted],
        "emitted_after": [after for after, _ in emitted],
        "peer_gap_ms": log["gap_ms"] - shorter,
    }
    if log["kind"] == "session" and not rules_agree(log, 0, shorter):
        del answer["emissions"], answer["emitted_after"]
    if not shorter:
        del answer["peer_gap_ms"]
    return answer


def answers_of(jobs: list[Job], jars: Path) -> list[Answer]:
    fields: dict[int, list[list[str]]] = defaultdict(list)
    for line in run_flink(jobs, jars):
        fields[int(line[1])].append(line)
    answers: list[Answer] = []
    for job in jobs:
        for place, log in enumerate(job.logs):
            about = fields[len(answers)]
            answers.append(read_answer(log, job.flush(place), job.shorter, about))
    return answers


def as_line(answer: Answer) -> str:
    return json.dumps(answer, separators=(",", ":"))


def choose(answers: list[Answer], wanted: int, longest: int) -> list[Answer]:
    """A third with dropped clicks, a third with late ones, the rest as it comes; short lines only."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    mixed = random.Random(wanted).sample(answers, len(answers))
    for answer in mixed:
        if len(as_line(answer)) <= longest:
            _, statuses = count(answer)
            worst = "dropped" if answer["dropped"] else "late" if "late" in statuses else "on_time"
            groups[worst].append(answer)
    chosen = groups["dropped"][: wanted // 3] + groups["late"][: wanted // 3]
    return chosen + groups["on_time"][: wanted - len(chosen)]


def compare(answers: list[Answer]) -> int:
    """Prints what was compared and every disagreement; gives the number of logs that disagree."""
    wrong = 0
    for kind in ("tumbling", "sliding", "session"):
        seen: Counter[str] = Counter()
        for answer in (a for a in answers if a["kind"] == kind):
            _, statuses = count(answer)
            seen["logs"] += 1
            seen["clicks"] += len(statuses)
            seen["late"] += statuses.count("late")
            seen["dropped"] += len(answer["dropped"])
            seen["partly too late"] += len({click for click, _, _ in answer["partly_too_late"]})
            seen["final windows"] += len(answer["final"])
            seen["logs with late or dropped clicks"] += statuses.count("on_time") < len(statuses)
            seen["logs before 1970"] += any(at < 0 for at, _ in answer["clicks"])
            seen["logs with the gap one shorter"] += "peer_gap_ms" in answer
            seen["logs with emissions compared"] += "emissions" in answer
            seen["emissions compared"] += len(answer.get("emissions", []))
            if found := disagreements(answer):
                seen["logs that disagree"] += 1
                print(f"disagrees: {as_line(answer)}\n  " + "\n  ".join(found))
        wrong += seen["logs that disagree"]
        print(f"{kind}: " + ", ".join(f"{n} {what}" for what, n in seen.items() if n))
    print(f"{len(answers)} logs, {wrong} disagree")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Asks Apache Flink to count random logs of clicks.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tumbling", type=int, default=1200, help="number of logs")
    parser.add_argument("--sliding", type=int, default=1200, help="number of logs")
    parser.add_argument("--session", type=int, default=800, help="number of logs")
    parser.add_argument("--jars", type=Path, help="Flink's lib directory")
    parser.add_argument("--check", action="store_true", help="compare with model.py, print no answers")
    parser.add_argument("--keep", type=Path, help="write 240 of the answers to this file")
    args = parser.parse_args()

    jars: Path | None = args.jars
    if jars is None:
        spec = importlib.util.find_spec("pyflink")
        if spec is None or not spec.submodule_search_locations:
            parser.error("no Flink here: install apache-flink-libraries, or give --jars")
        jars = Path(spec.submodule_search_locations[0]) / "lib"
    found = re.search(r"flink-dist-(.*)\.jar", " ".join(p.name for p in jars.glob("flink-dist-*.jar")))
    if found is None:
        parser.error(f"no flink-dist in {jars}")

    rng = random.Random(args.seed)
    numbers = (("tumbling", args.tumbling), ("sliding", args.sliding), ("session", args.session))
    answers = answers_of([job for kind, n in numbers for job in draw_jobs(rng, kind, n)], jars)
    if args.keep:
        header = {"peer": "Apache Flink", "version": found[1], "seed": args.seed, "logs": len(answers)}
        lines = [json.dumps({**header, "made_by": Path(__file__).name})]
        for kind, wanted in (("tumbling", 90), ("sliding", 90), ("session", 60)):
            lines += map(as_line, choose([a for a in answers if a["kind"] == kind], wanted, 1000))
        args.keep.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    if args.check:
        print(f"Apache Flink {found[1]}, seed {args.seed}")
        return 1 if compare(answers) else 0
    if not args.keep:
        print("\n".join(map(as_line, answers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
