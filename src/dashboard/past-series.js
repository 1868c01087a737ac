// A range of the past, added up by the server, and asked for again when a frame touches it.

import { Refused } from "./api.js";
import { DAY, HOUR, amount } from "./series.js";
import { zone } from "./words.js";

/** Most bars of a range of the past. */
const MOST_BARS = 130;

/** The pieces of a calendar, with about how long they are. */
const INTERVALS = [["hour", HOUR], ["day", DAY], ["week", 7 * DAY], ["month", 30.44 * DAY]];

/** How long the server rests between two readings of the same range. */
const REST_MS = 2000;

/** A range of the past. */
export class PastSeries {
  bars = new Set();
  groups = new Set();
  all = true;
  totals = new Map();
  truncated = false;
  moved = false;
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
    if (!this.failed) return;
    this.close();
    throw this.failed;
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

  /**
   * How a range of this length is cut into bars: by the windows themselves, or by the viewer's calendar,
   * or by that of UTC where windows do not fit the viewer's.
   */
  #cuts(length) {
    const size = this.spec.window.size_ms;
    if (length / size <= MOST_BARS) return [{}];
    const fits = INTERVALS.find(([, ms]) => ms >= size && length / ms <= MOST_BARS) ?? INTERVALS[3];
    return [{ interval: fits[0], tz: zone }, { interval: fits[0], tz: "UTC" }, {}];
  }

  /** The first of these ways to cut that the windows fit, and what it gives. */
  async #total(within, cuts) {
    for (const [i, cut] of cuts.entries()) {
      try {
        return { cut, bars: await this.#ask({ ...within, ...cut, groups: "total" }) };
      } catch (error) {
        if (error.status !== 422 || i === cuts.length - 1) throw error;
      }
    }
    return { cut: {}, bars: [] };
  }

  /** When the first and the last click of all were, to a month or a day. */
  async #extent() {
    const cuts = (interval) => [{ interval, tz: zone }, { interval, tz: "UTC" }, {}];
    let { bars } = await this.#total({}, cuts("month"));
    const ends = () => [Date.parse(bars[0].start), Date.parse(bars.at(-1).end)];
    if (bars.length === 0) return [this.page.now() - DAY, this.page.now()];
    const [from, to] = ends();
    // Empty days before and after the clicks are left out.
    if (to - from < 900 * DAY) ({ bars } = await this.#total({}, cuts("day")));
    return ends();
  }

  async #read() {
    this.#reading = true;
    this.#dirty = false;
    const began = performance.now();
    try {
      let { from, to } = this.#bounds();
      if (from === null) [from, to] = await this.#extent();
      const within = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
      const [{ cut, bars }, groups] = await Promise.all([
        this.#total(within, this.#cuts(to - from)),
        this.#ask({ ...within, merge: true, top: 1000 }),
      ]);
      if (this.#closed) return;
      this.cut = cut;
      this.within = within;
      this.#lines = new Map();
      this.#take(bars, groups, from, to);
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
    if (!this.#closed) this.page.drawn();
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
      if (this.#closed || lines !== this.#lines) return;
      const values = new Map(items.map((item) => [Date.parse(item.start), amount(item.value)]));
      lines.set(group, this.starts().map((start) => values.get(start) ?? 0));
      this.groups.add(group);
      this.page.drawn();
    } catch {
      // The line stays away; the numbers are there.
    }
  }
}
