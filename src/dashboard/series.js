// What a chart and its tables show: bars by time, and totals by group, of one rollup in one range.
//
// Two kinds. `LiveSeries` is the newest windows, out of what the client knows, moved on by each frame.
// `PastSeries` is a range of the past, added up by the server, and asked for again when a frame says
// that something in it has changed. A frame costs both of them what it says, however long the range.

import { Refused } from "./api.js";
import { zone } from "./words.js";

/**
 * @typedef {object} Bar
 * @property {number} start
 * @property {number} end
 * @property {number} value
 * @property {"open"|"fired"|"corrected"|"closed"} state
 */

/** So many of the newest windows are the live range. */
export const LIVE_WINDOWS = 60;

/** Most bars of a range of the past. */
const MOST_BARS = 130;

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

/** The pieces of a calendar, with about how long they are. */
const INTERVALS = [["hour", HOUR], ["day", DAY], ["week", 7 * DAY], ["month", 30.44 * DAY]];

/** How long the server rests between two readings of the same range. */
const REST_MS = 2000;

const additive = (spec) => spec.aggregate === "count" || spec.aggregate === "sum";

/** A value as one number; of `top`, all that it lists. */
export function amount(value) {
  if (!Array.isArray(value)) return value ?? 0;
  return value.reduce((sum, { count }) => sum + count, 0);
}

/** All groups of a window as one number: added up, or the one of them that says most. */
function total(spec, values) {
  let sum = 0;
  let most = -Infinity;
  let least = Infinity;
  for (const value of values) {
    const number = amount(value);
    sum += number;
    most = Math.max(most, number);
    least = Math.min(least, number);
  }
  if (additive(spec) || spec.aggregate === "top") return sum;
  if (most === -Infinity) return 0;
  return spec.aggregate === "min" ? least : most;
}

/** Of several states, the one that has come least far; corrected wins, for it is news. */
function together(states) {
  const order = ["corrected", "open", "fired", "closed"];
  return order.find((state) => states.has(state)) ?? "open";
}

/** How far apart the bars of a rollup are. */
export function step(spec) {
  const { kind, size_ms, slide_ms, gap_ms } = spec.window;
  if (kind === "tumbling") return size_ms;
  if (kind === "sliding") return slide_ms;
  // Sessions begin at any moment: those that begin near each other share a bar.
  return [60_000, 300_000, 900_000, HOUR, 6 * HOUR, DAY].find((ms) => ms >= gap_ms) ?? 7 * DAY;
}

/** Whether totals by group can be added up over the windows of a rollup. */
export const addsUp = (spec) => additive(spec) && spec.window.kind !== "sliding";

/** The newest windows of a rollup. */
export class LiveSeries {
  /** What has changed since it was last drawn: starts of bars, and groups. */
  bars = new Set();
  groups = new Set();
  /** Everything is to be drawn anew. */
  all = true;
  /** @type {Map<string, number>} */
  totals = new Map();
  truncated = false;

  #book;
  #slots = new Map();
  #final = new Set();

  /**
   * @param {import("./client.js").Book} book
   * @param {string} name Of the rollup.
   */
  constructor(book, name) {
    this.#book = book;
    this.name = name;
    this.#read();
  }

  get spec() {
    return this.#book.state.rollups.get(this.name).spec;
  }

  #read() {
    const rollup = this.#book.state.rollups.get(this.name);
    this.step = step(rollup.spec);
    this.#slots.clear();
    this.#final.clear();
    this.totals.clear();
    this.to = this.#edge(rollup);
    this.from = this.to - LIVE_WINDOWS * this.step;
    for (const window of rollup.windows.values()) {
      if (window.start < this.from) continue;
      this.#slot(window.start).add(window);
      for (const [group, value] of window.values) this.#add(group, amount(value));
    }
    this.all = true;
  }

  /** Where the newest bar ends: now, unless the newest clicks are long ago. */
  #edge(rollup) {
    let newest = -Infinity;
    for (const window of rollup.windows.values()) newest = Math.max(newest, window.start);
    const now = this.#book.now();
    const current = newest === -Infinity || now - newest < LIVE_WINDOWS * this.step;
    const live = this.#book.state.book.status !== "closed" || newest === -Infinity;
    const last = current && live ? Math.max(newest, now) : newest;
    return this.#begin(last) + this.step;
  }

  #begin(time) {
    return Math.floor(time / this.step) * this.step;
  }

  #slot(start) {
    const begin = this.#begin(start);
    let slot = this.#slots.get(begin);
    if (!slot) this.#slots.set(begin, slot = new Set());
    return slot;
  }

  #add(group, number) {
    if (number === 0) return;
    this.totals.set(group, (this.totals.get(group) ?? 0) + number);
    this.groups.add(group);
  }

  /** Takes in what a frame changed. */
  change({ all, panes }) {
    if (all) return this.#read();
    for (const { rollup, window, before } of panes) {
      if (rollup !== this.name || window.start < this.from) continue;
      if (window.start >= this.to) this.#move(this.#begin(window.start) + this.step);
      if (window.start < this.from) continue;
      const slot = this.#slot(window.start);
      if (window.values.size > 0) slot.add(window);
      else slot.delete(window);
      this.truncated ||= window.truncated;
      this.bars.add(this.#begin(window.start));
      for (const [group, old] of before) this.#add(group, amount(window.values.get(group)) - amount(old));
    }
    this.#finish();
  }

  /** Windows become final without being told of: the watermark says so. */
  #finish() {
    const { state } = this.#book;
    const rollup = state.rollups.get(this.name);
    for (const [start, slot] of this.#slots) {
      if (this.#final.has(start)) continue;
      if (start + this.step + rollup.closesAfter > (state.watermark ?? -Infinity)) continue;
      if (![...slot].every((window) => state.isClosed(rollup, window))) continue;
      this.#final.add(start);
      this.bars.add(start);
    }
  }

  /** Time has passed. */
  tick() {
    if (this.#book.state.book.status === "closed") return;
    const edge = this.#begin(this.#book.now()) + this.step;
    if (edge > this.to && edge - this.to < LIVE_WINDOWS * this.step) this.#move(edge);
  }

  /** Moves the range on; what leaves it is taken off the totals. */
  #move(to) {
    this.to = to;
    this.from = to - LIVE_WINDOWS * this.step;
    for (const [begin, slot] of this.#slots) {
      if (begin >= this.from) continue;
      for (const window of slot) {
        for (const [group, value] of window.values) this.#add(group, -amount(value));
      }
      this.#slots.delete(begin);
      this.#final.delete(begin);
      this.bars.add(begin);
    }
  }

  /** @returns {Bar|null} the bar that begins at `start`; null if there is none */
  bar(start) {
    const slot = this.#slots.get(start);
    if (!slot || slot.size === 0) return null;
    const rollup = this.#book.state.rollups.get(this.name);
    const states = new Set();
    let value = 0;
    for (const window of slot) {
      value += total(rollup.spec, window.values.values());
      const closed = this.#book.state.isClosed(rollup, window);
      states.add(window.corrected ? "corrected" : closed ? "closed" : window.fired ? "fired" : "open");
    }
    const [only] = slot;
    const end = slot.size === 1 ? only.end : start + this.step;
    return { start: slot.size === 1 ? only.start : start, end, value, state: together(states) };
  }

  /** The starts of all bars. */
  starts() {
    return [...this.#slots.keys()];
  }

  /** The values of a group, bar by bar. */
  line(group) {
    const values = [];
    for (let start = this.from; start < this.to; start += this.step) {
      let sum = 0;
      for (const window of this.#slots.get(start) ?? []) sum += amount(window.values.get(group));
      values.push(sum);
    }
    return values;
  }

  close() {}
}

/** A range of the past. */
export class PastSeries {
  bars = new Set();
  groups = new Set();
  all = true;
  totals = new Map();
  truncated = false;
  /** @type {Refused|null} why the last reading failed */
  failed = null;

  #api;
  #slug;
  #bars = new Map();
  #corrected = new Set();
  #lines = new Map();
  #timer = 0;
  #reading = false;
  #dirty = false;
  #closed = false;

  /**
   * @param {import("./api.js").Api} api
   * @param {string} slug
   * @param {object} spec Of the rollup.
   * @param {{from: number|null, to: number|null, length: number|null}} range `length` before now, or
   *   bounds; null is open
   * @param {{now: () => number, drawn: () => void}} page
   */
  constructor(api, slug, spec, range, page) {
    this.#api = api;
    this.#slug = slug;
    this.spec = spec;
    this.name = spec.name;
    this.range = range;
    this.page = page;
  }

  /** Reads it the first time. */
  async open() {
    await this.#read();
    if (this.failed) throw this.failed;
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #ask(parameters) {
    const query = new URLSearchParams({ rollup: this.name, limit: 1000, ...parameters });
    return this.#api.all(`/v1/books/${encodeURIComponent(this.#slug)}/counts?${query}`);
  }

  #bounds() {
    const { from, to, length } = this.range;
    if (length !== null) return { from: this.page.now() - length, to: this.page.now() + this.spec.window.size_ms };
    return { from, to };
  }

  /** How a range of this length is cut into bars. */
  #cut(length) {
    const size = this.spec.window.size_ms;
    if (length / size <= MOST_BARS) return {};
    const fits = INTERVALS.find(([, ms]) => ms >= size && length / ms <= MOST_BARS) ?? INTERVALS[3];
    return { interval: fits[0], tz: zone };
  }

  async #read() {
    this.#reading = true;
    this.#dirty = false;
    const began = performance.now();
    try {
      let { from, to } = this.#bounds();
      if (from === null) {
        const months = await this.#ask({ groups: "total", interval: "month", tz: zone });
        from = months.length > 0 ? Date.parse(months[0].start) : this.page.now() - DAY;
        to ??= months.length > 0 ? Date.parse(months.at(-1).end) : this.page.now();
        // Empty days before and after the clicks are left out.
        const days = await this.#ask({ groups: "total", interval: to - from > 900 * DAY ? "month" : "day", tz: zone });
        if (days.length > 0) [from, to] = [Date.parse(days[0].start), Date.parse(days.at(-1).end)];
      }
      const within = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
      this.cut = this.#cut(to - from);
      const [bars, groups] = await Promise.all([
        this.#ask({ ...within, ...this.cut, groups: "total" }),
        this.#ask({ ...within, merge: true, top: 1000 }),
      ]);
      if (this.#closed) return;
      this.#take(bars, groups, from, to);
      this.within = within;
      this.#lines.clear();
      this.failed = null;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.failed = error;
      this.#dirty = error.status === 0 || error.status >= 500;
    } finally {
      this.#reading = false;
      const rest = Math.max(REST_MS, 5 * (performance.now() - began));
      if (!this.#closed) this.#timer = setTimeout(() => this.#again(), rest);
    }
    this.page.drawn();
  }

  #again() {
    this.#timer = 0;
    if (this.#dirty) this.#read();
  }

  #take(bars, groups, from, to) {
    this.#bars = new Map(bars.map((bar) => {
      const [start, end] = [Date.parse(bar.start), Date.parse(bar.end)];
      const state = this.#corrected.has(start) ? "corrected" : bar.state;
      return [start, { start, end, value: amount(bar.value), state }];
    }));
    this.totals = new Map(groups.map((group) => [group.group, amount(group.value)]));
    const first = bars.length > 0 ? Date.parse(bars[0].start) : from;
    this.from = Math.min(from, first);
    this.to = bars.length > 0 ? Math.max(to, Date.parse(bars.at(-1).end)) : to;
    this.step = INTERVALS.find(([name]) => name === this.cut.interval)?.[1] ?? this.spec.window.size_ms;
    this.all = true;
  }

  change({ all, panes }) {
    let touched = all;
    for (const { rollup, window, pane } of panes) {
      if (rollup !== this.name || window.end <= this.from) continue;
      touched = true;
      if (pane !== "late") continue;
      for (const bar of this.#bars.values()) {
        if (bar.start <= window.start && window.start < bar.end) this.#corrected.add(bar.start);
      }
    }
    if (!touched || (this.range.to !== null && !all && panes.length > 0 && this.#isBehind(panes))) return;
    this.#dirty = true;
    if (!this.#timer && !this.#reading) this.#read();
  }

  /** Whether all that changed lies behind a range that has an end. */
  #isBehind(panes) {
    return panes.every(({ window }) => window.start >= this.range.to);
  }

  tick() {}

  bar(start) {
    return this.#bars.get(start) ?? null;
  }

  starts() {
    return [...this.#bars.keys()];
  }

  /** The values of a group, bar by bar; null until they are read, which this begins. */
  line(group) {
    const known = this.#lines.get(group);
    if (known !== undefined) return known;
    this.#lines.set(group, null);
    this.#readLine(group, this.#lines);
    return null;
  }

  async #readLine(group, lines) {
    try {
      const items = await this.#ask({ ...this.within, ...this.cut, group });
      const values = new Map(items.map((item) => [Date.parse(item.start), amount(item.value)]));
      lines.set(group, this.starts().map((start) => values.get(start) ?? 0));
      this.groups.add(group);
      this.page.drawn();
    } catch {
      // The line stays away; the numbers are there.
    }
  }
}
