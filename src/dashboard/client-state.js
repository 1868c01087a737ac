// What is known of a book: built from a snapshot, moved on by frames. No network; see client.js.

/**
 * @typedef {object} Window One window of a rollup.
 * @property {number} start First moment, in milliseconds since the epoch.
 * @property {number} end First moment after it.
 * @property {Map<string, number|Array<{item: string, count: number}>>} values By group.
 * @property {boolean} fired It was counted to its end; until then its values are provisional.
 * @property {boolean} corrected It has changed after it had fired, since this `Book` first saw it.
 * @property {boolean} truncated It has more groups; the greatest are shown.
 */

/**
 * @typedef {object} Rollup One way of counting.
 * @property {string} name
 * @property {object} spec As the book says it.
 * @property {number} closesAfter How long after its end a window still takes late clicks, in ms.
 * @property {Map<string, Window>} windows Those that can still change, and the newest of the others.
 */

const END_OF_TIME = Date.parse("9999-12-31T23:59:59.999Z");

/** Closed windows of each rollup that are kept, as a snapshot has them, and how many more there may be. */
const KEPT = 60;
const MORE = 6;

/** A moment of the server's in ms; null stays null. */
export const time = (text) => (text === null || text === undefined ? null : Date.parse(text));

function watermark(text) {
  const ms = time(text);
  return ms !== null && ms >= END_OF_TIME ? Infinity : ms;
}

const key = (start, end) => `${start}/${end}`;

/** What is known of a book. */
export class State {
  /** As `GET /v1/books/{book}` gives it. */
  book;
  /** The newest frame that it contains. */
  position;
  revision;
  /** How far event time has come, in ms; `Infinity` once closed, null before the first click. */
  watermark;
  /** Clicks by what became of them. */
  totals;
  chapters;
  /** @type {Map<string, object>} By id. */
  notes;
  /** @type {Map<string, object>} By id. */
  runs;
  /** @type {Map<string, Rollup>} By name, in the book's order. */
  rollups;

  /** How far event time had come before the commit that the last frame tells of. */
  #watermarkBefore;

  /**
   * @param {object} snapshot As the server gives it.
   * @param {State|null} [before] What was known before; what it saw corrected stays so, for a snapshot
   *   does not tell.
   */
  constructor(snapshot, before) {
    this.book = snapshot.book;
    this.position = snapshot.position;
    this.revision = snapshot.revision;
    this.watermark = watermark(snapshot.watermark);
    this.#watermarkBefore = this.watermark;
    this.totals = snapshot.book.totals;
    this.chapters = snapshot.chapters;
    this.notes = new Map(snapshot.notes.map((note) => [note.id, note]));
    this.runs = new Map(snapshot.runs.map((run) => [run.id, run]));
    this.rollups = new Map(snapshot.book.rollups.map((spec) => {
      const lateness = spec.lateness_ms ?? snapshot.book.settings.lateness_ms;
      const closesAfter = lateness + (spec.window.kind === "session" ? spec.window.gap_ms : 0);
      return [spec.name, { name: spec.name, spec, closesAfter, windows: new Map(), open: 0 }];
    }));
    for (const shown of snapshot.windows) {
      const window = windowOf(this.rollups.get(shown.rollup), time(shown.start), time(shown.end));
      window.fired ||= shown.state !== "open";
      window.truncated ||= shown.truncated === true;
      for (const [group, value] of Object.entries(shown.values)) window.values.set(group, value);
    }
    for (const rollup of before?.rollups.values() ?? []) {
      for (const [name, known] of rollup.windows) {
        const window = this.rollups.get(rollup.name)?.windows.get(name);
        if (window) window.corrected = known.corrected || (known.fired && !same(known, window));
      }
    }
  }

  /**
   * Takes a frame in. Gives the panes that changed something; nothing for one that is known already.
   * @param {object} frame
   * @returns {Array<{rollup: string, window: Window, pane: string, before: Map<string, any>}>}
   */
  take(frame) {
    if (frame.position <= this.position) return [];
    if (frame.revision !== this.revision) this.#watermarkBefore = this.watermark;
    this.position = frame.position;
    this.revision = frame.revision;
    switch (frame.type) {
      case "counts":
        return this.#counts(frame);
      case "chapter":
        this.chapters = frame.chapters;
        break;
      case "note":
        if (frame.removed) this.notes.delete(frame.note.id);
        else this.notes.set(frame.note.id, frame.note);
        break;
      case "progress":
        this.runs.set(frame.run.id, frame.run);
        break;
      case "status":
        this.book.status = frame.status;
        break;
    }
    return [];
  }

  /** Whether a window takes no late clicks any more. */
  isClosed(rollup, window) {
    return window.fired && this.watermark !== null && window.end + rollup.closesAfter <= this.watermark;
  }

  #counts(frame) {
    this.watermark = watermark(frame.watermark);
    this.totals = frame.totals;
    const changed = [];
    for (const pane of frame.panes) {
      const rollup = this.rollups.get(pane.rollup);
      // One that came meanwhile is told of by a status frame.
      if (!rollup) continue;
      for (const gone of pane.replaces ?? []) changed.push(...removed(rollup, gone));
      const window = windowOf(rollup, time(pane.start), time(pane.end));
      const before = new Map();
      for (const [group, value] of Object.entries(pane.values)) {
        before.set(group, window.values.get(group));
        window.values.set(group, value);
      }
      // A group that first comes after its window has ended corrects the window, too.
      const over = this.#watermarkBefore !== null && window.end <= this.#watermarkBefore;
      window.corrected ||= pane.pane === "late" || (pane.pane === "on_time" && over);
      window.fired ||= pane.pane !== "early";
      window.truncated ||= pane.truncated === true;
      changed.push({ rollup: rollup.name, window, pane: pane.pane, before });
      if (rollup.windows.size > KEPT + MORE + rollup.open) this.#forget(rollup);
    }
    return changed;
  }

  /** Lets the oldest of the windows go that cannot change any more. */
  #forget(rollup) {
    const closed = [...rollup.windows.values()].filter((window) => this.isClosed(rollup, window));
    closed.sort((a, b) => b.end - a.end);
    for (const window of closed.slice(KEPT)) rollup.windows.delete(key(window.start, window.end));
    // So that a rollup with many open windows is not looked through with each frame.
    rollup.open = rollup.windows.size - Math.min(closed.length, KEPT);
  }
}

/** The window of a rollup with these bounds; a new one if there is none. */
function windowOf(rollup, start, end) {
  const name = key(start, end);
  let window = rollup.windows.get(name);
  if (!window) {
    window = { start, end, values: new Map(), fired: false, corrected: false, truncated: false };
    rollup.windows.set(name, window);
  }
  return window;
}

/** Takes a session away that went into another. */
function removed(rollup, { start, end, group }) {
  const name = key(time(start), time(end));
  const window = rollup.windows.get(name);
  if (!window?.values.has(group)) return [];
  const before = new Map([[group, window.values.get(group)]]);
  window.values.delete(group);
  if (window.values.size === 0) rollup.windows.delete(name);
  return [{ rollup: rollup.name, window, pane: "late", before }];
}

function same(a, b) {
  if (a.values.size !== b.values.size) return false;
  for (const [group, value] of a.values) {
    if (JSON.stringify(value) !== JSON.stringify(b.values.get(group))) return false;
  }
  return true;
}
