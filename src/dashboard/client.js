// Pagetide for the dashboards of others: a book, live, in ten lines.
//
//   import { Book } from "https://stats.example.org/client.js";
//
//   const book = new Book({ book: "my-book", token: "pt_…" });   // a token that may read
//   book.addEventListener("change", () => {
//     for (const window of book.state.rollups.get("live").windows.values()) {
//       console.log(new Date(window.start), Object.fromEntries(window.values));
//     }
//   });
//   book.addEventListener("connection", () => console.log(book.connection.state));
//   book.start();
//
// It reads a snapshot, follows the stream from there, goes on after an interruption exactly where it
// was, and reads a new snapshot when the server says that it must. What `state` holds is always what
// the server said as of `state.position`.

import { State, time } from "./client-state.js";

/**
 * @typedef {import("./client-state.js").Window} Window
 */

/**
 * @typedef {object} Connection
 * @property {"connecting"|"live"|"reconnecting"|"ended"|"denied"} state
 * @property {string|null} reason Of an end or a refusal.
 * @property {number|null} heardAt When the server last said anything, by this machine's clock.
 * @property {number|null} frameAt When the last frame came.
 * @property {number|null} resynchronisedAt When a new snapshot last took the place of frames that
 *   could not be had any more.
 */

/**
 * @typedef {object} Change What an event `change` tells in `detail`.
 * @property {boolean} all Anything may have changed: a snapshot was read.
 * @property {string} type The frame's type, or `snapshot`.
 * @property {Array<{rollup: string, window: Window, pane: string, before: Map<string, any>}>} panes
 *   The windows that changed, with what their changed groups were before.
 */

/** How long a server may be silent if it does not say how often its heartbeats come. */
const HEARTBEAT_MS = 15_000;

/** Longest time between two tries to connect. */
const PATIENCE_MS = 30_000;

/** Windows that were too large for a frame are asked for at most this often. */
const TRUNCATED_MS = 2000;

/** A book, followed live. Events: `change` ({@link Change}), `connection`. */
export class Book extends EventTarget {
  /** @type {State|null} */
  state = null;

  /** @type {Connection} */
  connection = { state: "connecting", reason: null, heardAt: null, frameAt: null, resynchronisedAt: null };

  /** What this machine's clock is behind the server's, in ms. */
  clockOffset = 0;

  #url;
  #auth;
  #session = null;
  #source = null;
  #tries = 0;
  #timer = 0;
  #running = false;
  /** Grows with each reading, so that what belongs to an earlier one is dropped. */
  #epoch = 0;
  /** A snapshot is needed: there is none, or something came that only a snapshot tells. */
  #due = true;
  /** Snapshots that were asked for. */
  #reading = 0;
  /** Sessions that were refused one after the other. */
  #renewals = 0;
  /** Frames that came while a snapshot is read. */
  #waiting = null;
  #heartbeat = HEARTBEAT_MS;
  #truncated = new Map();
  #truncatedTimer = 0;
  #wake = () => this.#look();

  /**
   * @param {object} options
   * @param {string} options.book Id or slug.
   * @param {string} [options.url] The server; the one that this module came from if absent.
   * @param {string} [options.token] A token that may read the book; exchanged for a session.
   * @param {string|(() => Promise<string>)} [options.session] A session, or what gives a new one.
   * @param {RequestCredentials} [options.credentials] For a cookie: `include` from another origin.
   *   Without token and session, the cookie of the same origin is sent.
   */
  constructor({ book, url = new URL(import.meta.url).origin, token, session, credentials }) {
    super();
    this.#url = `${url.replace(/\/+$/, "")}/v1/books/${encodeURIComponent(book)}`;
    const sessions = `${url.replace(/\/+$/, "")}/v1/sessions`;
    this.#auth = {
      credentials: credentials ?? (token || session ? "omit" : "same-origin"),
      renew: typeof session === "function" ? session : token ? () => open(sessions, token) : null,
    };
    if (typeof session === "string") this.#session = session;
  }

  /** Begins to follow. */
  start() {
    if (this.#running) return;
    this.#running = true;
    addEventListener("online", this.#wake);
    addEventListener("pageshow", this.#wake);
    document.addEventListener("visibilitychange", this.#wake);
    this.#connect();
  }

  /** Ends; nothing is told any more. */
  close() {
    this.#running = false;
    removeEventListener("online", this.#wake);
    removeEventListener("pageshow", this.#wake);
    document.removeEventListener("visibilitychange", this.#wake);
    this.#disconnect();
    clearTimeout(this.#truncatedTimer);
  }

  /** Looks at once whether a finished book was changed, reopened or is counted again. */
  refresh() {
    if (this.#running && this.connection.state === "ended") this.#connect();
  }

  /** The server's time now, in ms since the epoch. */
  now() {
    return Date.now() + this.clockOffset;
  }

  #disconnect() {
    this.#epoch += 1;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    this.#waiting = null;
  }

  #say(state, reason = null) {
    const before = this.connection;
    if (before.state === state && before.reason === reason) return;
    this.connection = { ...before, state, reason };
    this.dispatchEvent(new Event("connection"));
  }

  /** Opens a stream behind what is known, after a snapshot where that is not enough. */
  async #connect() {
    this.#disconnect();
    const epoch = this.#epoch;
    // Whoever looks whether a finished book was reopened has lost nothing.
    if (this.connection.state !== "ended") this.#say(this.state ? "reconnecting" : "connecting");
    try {
      if (this.#due) await this.#snapshot(epoch);
      // What a native EventSource does not tell: whether it is refused, or there is nothing to come.
      else if (this.#tries > 0 || this.state.book.at_rest) await this.#probe(epoch);
      if (epoch !== this.#epoch) return;
      if (this.state.book.at_rest) return this.#rest();
      await this.#follow(epoch);
    } catch (error) {
      if (epoch === this.#epoch) this.#failed(error);
    }
  }

  /** Nothing more will come, unless the book is reopened, or counted again. */
  #rest() {
    this.#disconnect();
    this.#say("ended", "at_rest");
    this.#timer = setTimeout(() => this.#connect(), 2 * PATIENCE_MS);
  }

  #failed(error) {
    const status = error.status ?? 0;
    if (status === 401 && this.#auth.renew && this.#session && this.#renewals < 3) {
      this.#session = null;
      this.#renewals += 1;
      this.#connect();
    } else if ([401, 403, 404].includes(status)) {
      this.#disconnect();
      this.#say("denied", String(status));
    } else {
      this.#again();
    }
  }

  /** Tries again later: soon at first, and not at the same moment as everybody else. */
  #again() {
    this.#disconnect();
    this.#say(this.state ? "reconnecting" : "connecting", "unreachable");
    const most = Math.min(PATIENCE_MS, 1000 * 2 ** this.#tries);
    this.#tries += 1;
    this.#timer = setTimeout(() => this.#connect(), most * (0.5 + Math.random() / 2));
  }

  async #address(path, parameters) {
    const url = new URL(this.#url + path);
    for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
    if (this.#auth.renew) this.#session ??= await this.#auth.renew();
    if (this.#session) url.searchParams.set("session", this.#session);
    return url;
  }

  async #get(path, parameters, signal) {
    const url = await this.#address(path, parameters);
    const answer = await fetch(url, { credentials: this.#auth.credentials, cache: "no-store", signal });
    if (!answer.ok) throw Object.assign(new Error(`status ${answer.status}`), { status: answer.status });
    return answer;
  }

  /** Asks for the stream and lets it go: its status says what an EventSource hides. */
  async #probe(epoch) {
    const stop = new AbortController();
    const late = setTimeout(() => stop.abort(), PATIENCE_MS / 3);
    try {
      const answer = await this.#get("/events", { last_event_id: this.state.position }, stop.signal);
      if (epoch === this.#epoch) this.state.book.at_rest = answer.status === 204;
    } finally {
      clearTimeout(late);
      stop.abort();
    }
  }

  async #snapshot(epoch) {
    const reading = ++this.#reading;
    const stop = new AbortController();
    const late = setTimeout(() => stop.abort(), PATIENCE_MS);
    try {
      const answer = await this.#get("/snapshot", {}, stop.signal);
      const snapshot = await answer.json();
      // A later reading knows more, and may have ended before.
      if (epoch !== this.#epoch || reading !== this.#reading) return;
      this.state = new State(snapshot, this.state);
      this.#due = false;
      this.#truncated.clear();
      this.#tell({ all: true, type: "snapshot", panes: [] });
    } finally {
      clearTimeout(late);
    }
  }

  async #follow(epoch) {
    const url = await this.#address("/events", { last_event_id: this.state.position, heartbeat: "event" });
    if (epoch !== this.#epoch) return;
    const source = new EventSource(url, { withCredentials: this.#auth.credentials === "include" });
    this.#source = source;
    const on = (name, react) => source.addEventListener(name, (event) => {
      if (epoch !== this.#epoch) return;
      this.#heard();
      react(JSON.parse(event.data));
    });
    on("hello", (hello) => this.#hello(hello));
    for (const type of ["counts", "chapter", "note", "status", "progress"]) {
      on(type, (frame) => this.#frame(frame, epoch));
    }
    on("heartbeat", () => {});
    on("resync_required", () => {
      this.connection.resynchronisedAt = Date.now();
      this.#resynchronise(epoch);
    });
    on("end", ({ reason }) => {
      if (reason === "deleted") {
        this.#disconnect();
        return this.#say("ended", "deleted");
      }
      // What is being read would be lost with the stream, and there is no other to ask again.
      if (this.#due) return this.#connect();
      this.state.book.at_rest = true;
      this.#rest();
    });
    on("session_ended", () => {
      this.#session = null;
      if (this.#auth.renew) this.#connect();
      else {
        this.#disconnect();
        this.#say("denied", "401");
      }
    });
    // The server closes a healthy stream: the browser comes back by itself.
    on("bye", () => {});
    source.addEventListener("error", () => {
      if (epoch !== this.#epoch) return;
      // Refused, or nothing to come: the browser does not try again, so this does.
      if (source.readyState === EventSource.CLOSED) return this.#again();
      // The browser would go on behind frames that wait for a snapshot.
      if (this.#waiting) return this.#again();
      this.#say("reconnecting", "unreachable");
    });
    this.#watch(epoch);
  }

  #heard() {
    this.connection.heardAt = Date.now();
  }

  #hello(hello) {
    this.#tries = 0;
    this.#renewals = 0;
    this.clockOffset = Date.parse(hello.server_time) - Date.now();
    this.#heartbeat = hello.heartbeat_ms ?? HEARTBEAT_MS;
    if (hello.mode !== "resync") this.#say("live");
  }

  /** A stream that says nothing for longer than its heartbeats allow is dead, whatever it looks like. */
  #watch(epoch) {
    const began = Date.now();
    const look = () => {
      if (epoch !== this.#epoch) return;
      const most = Math.max(2.5 * this.#heartbeat, 3000);
      const silent = Date.now() - Math.max(this.connection.heardAt ?? 0, began);
      if (silent >= most) return this.#connectAnew();
      this.#timer = setTimeout(look, Math.min(most - silent, 5000) + 50);
    };
    clearTimeout(this.#timer);
    this.#timer = setTimeout(look, 1000);
  }

  #connectAnew() {
    // Tries that are not heard of either come less often.
    this.#heartbeat = Math.min(this.#heartbeat * 1.5, 2 * PATIENCE_MS);
    this.#connect();
  }

  /** The page is looked at again, or the network is back. */
  #look() {
    if (!this.#running || document.visibilityState === "hidden") return;
    const { state, heardAt } = this.connection;
    const silent = Date.now() - (heardAt ?? 0);
    const due = state === "live" ? silent > 1.5 * this.#heartbeat : silent > 2000;
    if (state !== "ended" && state !== "denied" && due) this.#connect();
  }

  /** What is known is not enough: a snapshot takes its place, and the stream goes on behind it. */
  async #resynchronise(epoch) {
    this.#due = true;
    // Those of a reading that this one overtakes wait on.
    this.#waiting ??= [];
    try {
      await this.#snapshot(epoch);
    } catch (error) {
      if (epoch === this.#epoch) this.#failed(error);
      return;
    }
    if (epoch !== this.#epoch || this.#due || !this.#waiting) return;
    const frames = this.#waiting;
    this.#waiting = null;
    for (const frame of frames) this.#frame(frame, epoch);
    this.#say("live");
    this.dispatchEvent(new Event("connection"));
  }

  #tell(detail) {
    if (!this.#running) return;
    this.dispatchEvent(new CustomEvent("change", { detail }));
  }

  #frame(frame, epoch) {
    if (this.#waiting) return void this.#waiting.push(frame);
    if (frame.position <= this.state.position) return;
    this.connection.frameAt = Date.now();
    const panes = this.state.take(frame);
    for (const { rollup, window } of panes) {
      if (window.truncated) this.#readTruncated(this.state.rollups.get(rollup), window);
    }
    this.#tell({ all: false, type: frame.type, panes });
    // Settings, rollups and the title are not in a status frame.
    if (frame.type === "status") this.#resynchronise(epoch);
  }

  /** Reads a window of which a frame could not hold all groups. */
  #readTruncated(rollup, window) {
    this.#truncated.set(window, rollup);
    if (this.#truncatedTimer) return;
    this.#truncatedTimer = setTimeout(async () => {
      const due = [...this.#truncated];
      this.#truncated.clear();
      for (const [window, rollup] of due) {
        try {
          await this.#readWindow(rollup, window);
        } catch {
          // The next frame that touches it asks again; the greatest groups are there.
        }
      }
      this.#truncatedTimer = 0;
      const [next] = this.#truncated;
      if (next && this.connection.state === "live") this.#readTruncated(next[1], next[0]);
    }, TRUNCATED_MS);
  }

  async #readWindow(rollup, window) {
    const iso = (ms) => new Date(ms).toISOString();
    const asked = { rollup: rollup.name, from: iso(window.start), to: iso(window.end), top: 1000, limit: 1000 };
    const items = [];
    do {
      const page = await (await this.#get("/counts", asked)).json();
      items.push(...page.items);
      asked.cursor = page.next_cursor;
    } while (asked.cursor !== null && this.#running);
    // A frame that came meanwhile may be newer than what was read; it has asked again.
    if (this.state.rollups.get(rollup.name) !== rollup || this.#truncated.has(window)) return;
    const before = new Map();
    for (const item of items) {
      if (time(item.start) !== window.start || time(item.end) !== window.end) continue;
      before.set(item.group, window.values.get(item.group));
      window.values.set(item.group, item.value);
    }
    this.#tell({ all: false, type: "counts", panes: [{ rollup: rollup.name, window, pane: "early", before }] });
  }
}

async function open(sessions, token) {
  const answer = await fetch(sessions, {
    method: "POST",
    credentials: "omit",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ cookie: false }),
  });
  if (!answer.ok) throw Object.assign(new Error(`status ${answer.status}`), { status: answer.status });
  return (await answer.json()).session;
}
