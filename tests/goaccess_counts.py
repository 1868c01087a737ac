#!/usr/bin/env python3
"""Reads the JSON report of GoAccess and prints what can be compared, fields apart by tabs: `day`, the
day, its hits; `page`, the canonical page, its hits; `total`, `valid` and `failed`, each a number of
lines.

Usage: goaccess_counts.py REPORT
GoAccess undoes escapes, so what it calls a page is a path without query, bytes that may be no text.
"""

import json
import sys
from collections import Counter

sys.dont_write_bytecode = True
from independent_count import canonical_path  # noqa: E402

with open(sys.argv[1], "rb") as file:
    report = json.loads(file.read().decode(errors="surrogateescape"))

for number in ("total", "valid", "failed"):
    print(number, report["general"][f"{number}_requests"], sep="\t")
for day in report["visitors"]["data"]:
    print("day", day["data"], day["hits"]["count"], sep="\t")
pages: Counter = Counter()
# Each request is in one of them.
for panel in ("requests", "static_requests", "not_found"):
    for request in report.get(panel, {}).get("data", []):
        path = request["data"].encode(errors="surrogateescape")
        pages[canonical_path(path)] += request["hits"]["count"]
for page, hits in sorted(pages.items()):
    print("page", page, hits, sep="\t")
