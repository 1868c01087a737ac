// The newest windows, out of what the client knows, moved on by each frame.

import { LIVE_WINDOWS, additive, amount, step } from "./series.js";

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

/**
 * The moment behind which all windows are known. Of windows that lie next to each other the newest sixty
 * are enough for the range; sessions may be many more.
 */
function complete(rollup, state) {
  if (rollup.spec.window.kind !== "session") return -Infinity;
  const closed = [...rollup.windows.values()].filter((window) => state.isClosed(rollup, window));
  return closed.length < LIVE_WINDOWS ? -Infinity : Math.min(...closed.map((window) => window.end));
}

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

  /** The range is another than when it was last drawn. */
  moved = false;

  #book;
  /** All windows that begin behind this moment are known. */
  #since = -Infinity;
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
    this.truncated = false;
    this.#since = complete(rollup, this.#book.state);
    this.to = this.#edge(rollup);
    this.from = this.#begins();
    for (const window of rollup.windows.values()) {
      if (window.start < this.from) continue;
      this.truncated ||= window.truncated;
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

  #begins() {
    return Math.max(this.to - LIVE_WINDOWS * this.step, this.#begin(this.#since) + this.step);
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
    const sum = (this.totals.get(group) ?? 0) + number;
    // Values have six digits after the point; what is left below that is of binary fractions.
    if (Math.abs(sum) < 5e-7) this.totals.delete(group);
    else this.totals.set(group, sum);
    this.groups.add(group);
  }

  /** Takes in what a frame changed. */
  change({ all, panes }) {
    if (all) return this.#read();
    let to = this.to;
    for (const { rollup, window, before } of panes) {
      if (rollup !== this.name || window.start < this.from) continue;
      to = Math.max(to, this.#begin(window.start) + this.step);
      const slot = this.#slot(window.start);
      if (window.values.size > 0) slot.add(window);
      else slot.delete(window);
      this.truncated ||= window.truncated;
      this.bars.add(this.#begin(window.start));
      for (const [group, old] of before) this.#add(group, amount(window.values.get(group)) - amount(old));
    }
    if (to > this.to) this.#move(to);
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
    this.from = this.#begins();
    this.moved = true;
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
