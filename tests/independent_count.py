#!/usr/bin/env python3
"""Counts an access log per hour and canonical page, without any of the program's code.

Prints one line for each: start of the hour in milliseconds, a tab, the page, a tab, the count.
With the word `views` behind the log, one line for each page view instead, bots among them: start of
the hour, the page, and the user agent.
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
    target = re.split(rb"[?#]", target)[0] or b"/"
    out = ""
    for piece in re.findall(rb"%[0-9A-Fa-f]{2}|.", target, flags=re.S):
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


VIEW = re.compile(rb'\[([^]]+)\] "GET (\S+)[^"]*" (?:2..|304) \S+ "(?:[^"\\]|\\.)*" "((?:[^"\\]|\\.)*)')
ASSETS = """css js mjs map json xml rss atom txt webmanifest ico png jpg jpeg gif svg webp avif bmp woff
woff2 ttf otf eot mp4 webm mp3 ogg wav""".split()


def hour(stamp: bytes) -> int:
    at = datetime.strptime(stamp.decode(), "%d/%b/%Y:%H:%M:%S %z").timestamp()
    return int(at) // 3600 * 3_600_000


if sys.argv[2:] == ["views"]:
    with open(sys.argv[1], "rb") as log:
        for view in filter(None, (VIEW.search(line.rstrip()) for line in log)):
            stamp, target, agent = view.groups()
            name = re.split(rb"[?#]", target)[0].split(b"/")[-1].decode("latin-1")
            if "." not in name or name.rsplit(".", 1)[1].lower() not in ASSETS:
                print(hour(stamp), canonical(target), agent.decode("latin-1"), sep="\t")
    sys.exit()

counts: Counter = Counter()
with open(sys.argv[1], "rb") as log:
    for line in log:
        stamp, target = LINE.search(line).groups()
        counts[hour(stamp), canonical(target)] += 1
for (start, page), count in sorted(counts.items()):
    print(start, page, count, sep="\t")
