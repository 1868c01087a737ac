#!/usr/bin/env python3
"""Makes the README's two pictures of the dashboard from real data.

    docs/screenshots.py PROGRAM [--folder docs] [--scheme light|dark]

PROGRAM is a built pagetide. It is started on an empty database of its own; chromedriver and Chromium
come from the system's packages, as the tests want them (tests/install.sh).

import.png: tests/data/apache_combined.log, four days of a site's traffic, imported.

live.png: tests/data/nasa_19950801.tsv, an afternoon of the Kennedy Space Center's site, replayed at
ten times its pace: the first ten minutes of it as a back end would deliver them after the fact, the
rest as it comes. Of every tenth host the clicks are held back for half a minute, as those of a phone
in a tunnel are; those are the bars that were corrected. It is taken once there are bars of all kinds.
"""

import argparse
import base64
import contextlib
import csv
import json
import pathlib
import re
import secrets
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
SIZE = {"width": 1280, "height": 1100, "deviceScaleFactor": 1, "mobile": False}
CHROMIUM = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
]

# 1995-08-01T15:00:00Z, an afternoon that begins.
REPLAY_FROM = 807_289_200
PACE = 10
BACKLOG_S = 600
LIVE_S = 50
HELD_S = 30


def ask(url, body=None, method=None, token=None, kind="application/json"):
    """What a request is answered with, as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    if data is not None:
        request.add_header("content-type", kind)
    if token:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{method or 'request'} {url}: {error.code} {error.read().decode()}") from error


def line_with(process, pattern):
    """The part of the first line of its output that matches."""
    for line in process.stdout:
        found = re.search(pattern, line)
        if found:
            return found[1]
    raise SystemExit(f"{process.args[0]} ended before it was ready")


@contextlib.contextmanager
def running(command, **options):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


class Browser:
    def __init__(self, driver):
        wanted = {"alwaysMatch": {"goog:chromeOptions": {"args": CHROMIUM}}}
        made = ask(f"{driver}/session", {"capabilities": wanted})
        self.session = f"{driver}/session/{made['value']['sessionId']}"
        self.cdp("Emulation.setDeviceMetricsOverride", SIZE)

    def command(self, path, body=None):
        return ask(f"{self.session}/{path}", body)["value"]

    def cdp(self, cmd, params):
        return self.command("goog/cdp/execute", {"cmd": cmd, "params": params})

    def run(self, script, *arguments):
        return self.command("execute/sync", {"script": script, "args": arguments})

    def until(self, script):
        end = time.monotonic() + 60
        while not self.run(f"return {script};"):
            if time.monotonic() > end:
                raise SystemExit(f"waited in vain for {script}")
            time.sleep(0.2)

    def picture(self, file):
        file.write_bytes(base64.b64decode(self.command("screenshot")))
        print(f"{file}: {file.stat().st_size // 1024} KiB")


class Server:
    def __init__(self, url, token):
        self.url, self.token = url, token

    def ask(self, path, body=None, **options):
        return ask(self.url + path, body, token=self.token, **options)


def log_in(browser, server):
    browser.command("url", {"url": server.url})
    browser.until("document.getElementById('token')")
    browser.run("document.getElementById('token').value = arguments[0];"
                "document.querySelector('form').requestSubmit();", server.token)
    browser.until("document.querySelector('a[href=\"/new\"]')")


def past_import(browser, server, file):
    server.ask("/v1/books", {"title": "A site’s access log, May 2015", "slug": "access-log"})
    log = (DATA / "apache_combined.log").read_bytes()
    run = server.ask("/v1/books/access-log/imports?format=combined&source=access", log, kind="text/plain")
    print(f"imported: {run['processed']} lines")
    server.ask("/v1/books/access-log/notes", {"text": "Sunday morning", "at": "2015-05-17T10:05:00Z"})
    browser.command("url", {"url": f"{server.url}/books/access-log"})
    browser.until("document.querySelectorAll('#chart [data-start]').length > 20")
    browser.until("document.querySelectorAll('#pages tr[data-group]').length > 5")
    time.sleep(2)
    browser.picture(file)


def replayed():
    """Page views of the log from a moment on: seconds since then at the pace of the replay, and the click."""
    with (DATA / "nasa_19950801.tsv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            at = (int(row["time"]) - REPLAY_FROM) / PACE
            viewed = row["method"] == "GET" and row["response"] in ("200", "304")
            if at >= 0 and viewed and re.search(r"(/|\.html?)$", row["url"]):
                yield at, {"page": row["url"], "visitor": row["host"]}


CHAPTERS = [
    {"id": "missions", "title": "Shuttle missions", "pages": ["/shuttle/missions/*"]},
    {"id": "countdown", "title": "Countdown", "pages": ["/shuttle/countdown/*"]},
    {"id": "history", "title": "History", "pages": ["/history/*"]},
    {"id": "technology", "title": "Technology", "pages": ["/shuttle/technology/*", "/software/*", "/elv/*"]},
    {"id": "visit", "title": "The Center", "pages": ["/ksc", "/facilities/*", "/facts/*"]},
]


ALL_KINDS = """
    const values = (state) => [...document.querySelectorAll(`#chart [data-state=${state}]`)].map((bar) => +bar.dataset.value);
    return document.querySelector("#connection").dataset.state === "live" && values("corrected").length > 1
        && values("open").some((value) => value > 4);"""


def live_book(browser, server, file):
    server.ask("/v1/books", {"title": "Kennedy Space Center, August 1995, replayed", "slug": "ksc"})
    server.ask("/v1/books/ksc/chapters", CHAPTERS, method="PUT")
    path = "/v1/books/ksc/clicks"
    clicks = list(replayed())
    held = {f"h{number:04}.example" for number in range(0, 10_000, 10)}
    began = time.time() - BACKLOG_S
    past = [dict(click, at=int((began + at) * 1000)) for at, click in clicks if at < BACKLOG_S]
    for first in range(0, len(past), 20):
        server.ask(path, past[first:first + 20])
    server.ask("/v1/books/ksc/notes", {"text": "Replay began", "at": int((began + BACKLOG_S / 2) * 1000)})
    browser.command("url", {"url": f"{server.url}/books/ksc"})
    coming = [(at + HELD_S if click["visitor"] in held else at, at, click) for at, click in clicks if at >= BACKLOG_S]
    for arrival, at, click in sorted(coming, key=lambda one: one[0]):
        time.sleep(max(0, began + arrival - time.time()))
        server.ask(path, dict(click, at=int((began + at) * 1000)))
        if arrival > BACKLOG_S + LIVE_S and browser.run(ALL_KINDS):
            browser.picture(file)
            return
    raise SystemExit("the log ended before there were bars of all kinds")



def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    options.add_argument("--scheme", choices=["light", "dark"], default="light")
    options = options.parse_args()
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory() as data:
        pathlib.Path(data).chmod(0o755)
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "PAGETIDE_LISTEN": "127.0.0.1:0",
            "PAGETIDE_DATA_DIR": data, "PAGETIDE_ADMIN_TOKEN": token, "PAGETIDE_LOG": "warn",
        }
        with running([options.program.resolve(), "serve"], env=environment) as program, \
                running(["chromedriver", "--port=0"]) as driver:
            server = Server(line_with(program, r"^listening on (\S+)"), token)
            port = line_with(driver, r"started successfully on port (\d+)")
            browser = Browser(f"http://127.0.0.1:{port}")
            try:
                browser.cdp("Emulation.setEmulatedMedia", {"features": [
                    {"name": "prefers-color-scheme", "value": options.scheme},
                    {"name": "prefers-reduced-motion", "value": "reduce"}]})
                log_in(browser, server)
                past_import(browser, server, options.folder / "import.png")
                live_book(browser, server, options.folder / "live.png")
            finally:
                ask(browser.session, method="DELETE")


if __name__ == "__main__":
    main()
