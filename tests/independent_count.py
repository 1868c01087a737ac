#!/usr/bin/env python3
"""Counts requests per hour and canonical page, without any of the program's code.

Usage: independent_count.py LOG
The log is an access log in Apache's combined format or, where its name ends in `.tsv`, a table with a
heading line and the columns `time`, in seconds, and `url`. Every request counts. Prints one line for
each hour and page: start of the hour in milliseconds, a tab, the page, a tab, the count.
The rules of canonical pages are written here a second time, from the contract.
"""

import re
import sys
from collections import Counter
from datetime import datetime
from urllib.parse import quote, unquote_to_bytes

LINE = re.compile(rb'\[([^]]+)\] "\S+ (\S+)')
ALLOWED = "!$&'()*+,;=:@/-._~"  # pchar of RFC 3986 and the slash, besides letters and digits
UNRESERVED = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def canonical(target: bytes) -> str:
    target = re.sub(rb"^https?://[^/?#]*", b"", target, flags=re.I)
    return canonical_path(re.split(rb"[?#]", target)[0] or b"/")


def canonical_path(path: bytes) -> str:
    out = ""
    for piece in re.findall(rb"%[0-9A-Fa-f]{2}|.", path, flags=re.S):
        if len(piece) == 3:
            byte = unquote_to_bytes(piece)
            out += byte.decode() if byte[0] in UNRESERVED else "%" + byte.hex().upper()
        else:
            out += quote(piece, safe=ALLOWED)
    assert "/." not in out or not re.search(r"/\.\.?(/|$)", out), "dot segments: " + out
    out = re.sub("/+", "/", out)
    while True:
        shorter = re.sub(r"(/index\.html|(?<=[^/])\.html|/)$", "", out)
        if shorter == out:
            return out or "/"
        out = shorter


def hour(stamp: bytes) -> int:
    at = datetime.strptime(stamp.decode(), "%d/%b/%Y:%H:%M:%S %z").timestamp()
    return int(at) // 3600 * 3_600_000


def requests(path: str):
    """The hour and the target of each."""
    with open(path, "rb") as log:
        if path.endswith(".tsv"):
            heading = log.readline().rstrip(b"\n").split(b"\t")
            time, url = heading.index(b"time"), heading.index(b"url")
            for line in log:
                fields = line.rstrip(b"\n").split(b"\t")
                yield int(fields[time]) // 3600 * 3_600_000, fields[url]
        else:
            for line in log:
                stamp, target = LINE.search(line).groups()
                yield hour(stamp), target


if __name__ == "__main__":
    counts = Counter((start, canonical(target)) for start, target in requests(sys.argv[1]))
    for (start, page), count in sorted(counts.items()):
        print(start, page, count, sep="\t")
