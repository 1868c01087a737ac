#!/usr/bin/env python3
"""Says what becomes of each line of an access log in Apache's combined format, without any of the
program's code.

Usage: independent_views.py LOG [--assets] [--errors] [--methods GET,POST]
Prints one line for each of the log, its fields apart by tabs: `view`, or the first rule that leaves
it out (`methods`, `errors`, `assets`), or `rejected`; then, but for those that are rejected, start of
the hour in milliseconds, canonical page, and user agent. Bots are among the views: whoever reads on
knows them by their user agents.
"""

import argparse
import re
import sys

sys.dont_write_bytecode = True
from independent_count import canonical, hour  # noqa: E402

QUOTED = rb'"((?:[^"\\]|\\.)*)"'
LINE = re.compile(
    rb"\[(\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [-+]\d{4})\] "
    + QUOTED
    + rb" (\d{3}) (?:\d+|-) "
    + QUOTED
    # The end of a line may be cut off.
    + rb' "((?:[^"\\]|\\.)*)(?:"|$)'
)
REQUEST = re.compile(rb"([A-Za-z0-9_-]+) +(\S.*?)(?: +HTTP/[0-9.]+)?$")
ASSETS = """css js mjs map json xml rss atom txt webmanifest ico png jpg jpeg gif svg webp avif bmp woff
woff2 ttf otf eot mp4 webm mp3 ogg wav""".split()

parser = argparse.ArgumentParser()
parser.add_argument("log")
parser.add_argument("--assets", action="store_true")
parser.add_argument("--errors", action="store_true")
parser.add_argument("--methods", default="GET")
rules = parser.parse_args()
methods = [method.encode() for method in rules.methods.split(",")]


def plain(field: bytes) -> bytes:
    """What the log added is undone."""
    def one(found):
        return bytes.fromhex(found[1][1:].decode()) if found[1][:1] == b"x" else found[1]

    return re.sub(rb'\\(x[0-9A-Fa-f]{2}|["\\])', one, field)


def is_asset(target: bytes) -> bool:
    name = re.split(rb"[?#]", target)[0].split(b"/")[-1].decode("latin-1")
    return "." in name and name.rsplit(".", 1)[1].lower() in ASSETS


def judge(line: bytes) -> list:
    found = LINE.search(line)
    request = found and REQUEST.match(plain(found[2]))
    if not request:
        return ["rejected"]
    try:
        start = hour(found[1])
    except ValueError:  # no day of any calendar
        return ["rejected"]
    method, target = request.groups()
    told = [start, canonical(target), plain(found[5]).decode(errors="replace")]
    if method not in methods:
        return ["methods", *told]
    if not rules.errors and not (200 <= int(found[3]) < 300 or found[3] == b"304"):
        return ["errors", *told]
    if not rules.assets and is_asset(target):
        return ["assets", *told]
    return ["view", *told]


with open(rules.log, "rb") as log:
    for line in log:
        print(*judge(line.rstrip(b"\r\n")), sep="\t")
