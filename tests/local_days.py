#!/usr/bin/env python3
"""Counts clicks by the hours, days, weeks or months of a local calendar, without any of the
program's code: by Python's zoneinfo, over the tz database of the system.

Usage: local_days.py ZONE hour|day|week|month < clicks
A click is a line: its time in milliseconds since the epoch, a tab, its page. Prints one line for
each bucket and page that has clicks: start and end of the bucket, page, count. A bucket is the
longest run of quarters of an hour around a click in which the local clock shows the same hour (and
is as far ahead of UTC), date, week or month.
"""

import sys
from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

QUARTER = 900_000
zone = ZoneInfo(sys.argv[1])


def shown(at: int):
    local = datetime.fromtimestamp(at / 1000, zone)
    match sys.argv[2]:
        case "hour":
            return local.date(), local.hour, local.utcoffset()
        case "day":
            return local.date()
        case "week":
            return local.isocalendar()[:2]
        case "month":
            return local.year, local.month
    raise SystemExit("hour, day, week or month")


bounds: dict = {}


def bucket(at: int):
    here = shown(at)
    if here not in bounds:
        start = at // QUARTER * QUARTER
        end = start + QUARTER
        while shown(start - QUARTER) == here:
            start -= QUARTER
        while shown(end) == here:
            end += QUARTER
        bounds[here] = start, end
    return bounds[here]


counts: Counter = Counter()
for line in sys.stdin:
    at, page = line.rstrip("\n").split("\t")
    counts[*bucket(int(at)), page] += 1
for (start, end, page), count in sorted(counts.items()):
    print(start, end, page, count, sep="\t")
