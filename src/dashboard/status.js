// What is known and how well: the connection, the numbers of now, and the totals.

import { amount, step } from "./series.js";
import { attr, el, text } from "./dom.js";
import { ago, atClock, atMoment, span, whole } from "./words.js";

/** The connection, in words. */
function connected({ state, reason, resynchronisedAt }) {
  switch (state) {
    case "live":
      return resynchronisedAt ? `Live · resynchronised at ${atClock(resynchronisedAt)}` : "Live";
    case "connecting":
      return reason ? "The server cannot be reached; trying again" : "Connecting";
    case "reconnecting":
      return "Connection lost; the numbers are as they were. Reconnecting";
    case "ended":
      return reason === "deleted" ? "This book was deleted" : "Finished: nothing more will come";
    default:
      return reason === "401" ? "Your login has ended" : "You may not see this book any more";
  }
}

const TOTALS = {
  on_time: ["Counted", "clicks counted while their window was open"],
  late: ["Counted late", "they came after their window had been counted, and corrected it"],
  dropped: ["Too late", "kept, and not counted: a recount brings them in"],
  duplicate: ["Sent twice", "known already, so not counted again"],
  filtered: ["Filtered", "robots, ignored networks, repeated clicks"],
  rejected: ["Rejected", "not understood or not allowed"],
  received: ["Received", "all of them"],
};

/** What the server calls them. */
const FIELDS = { duplicate: "duplicates" };

/** The strip above everything: whether what is shown is live. */
export class Connection {
  constructor() {
    this.words = el("span", {});
    this.root = el("p", { id: "connection", role: "status", class: "connection" },
      el("span", { class: "dot", "aria-hidden": "true" }), this.words);
    this.frame = el("time", { id: "last-frame" });
    this.last = el("p", { class: "hint" }, "Last change ", this.frame);
  }

  /** @param {import("./client.js").Book} book */
  draw(book) {
    const { connection } = book;
    text(this.words, connected(connection));
    attr(this.root, "data-state", connection.state);
    attr(this.root, "data-resynchronised", connection.resynchronisedAt);
    attr(this.frame, "datetime", connection.frameAt && new Date(connection.frameAt).toISOString());
    text(this.frame, connection.frameAt ? `${ago(connection.frameAt)}, ${atMoment(connection.frameAt)}` : "none since this page was opened");
  }
}

/** The two great numbers, and the one that adds up. */
export class Now {
  constructor() {
    const number = (id, label) => {
      const value = el("strong", { "data-now": id }, "–");
      const hint = el("span", { class: "hint" });
      return { value, hint, root: el("div", { class: "card now" }, el("span", { class: "label" }, label), value, hint) };
    };
    this.readers = number("readers", "Readers now");
    this.clicks = number("clicks", "Clicks in the running window");
    this.all = number("all", "Clicks counted");
    this.root = el("div", { class: "numbers" }, this.readers.root, this.clicks.root, this.all.root);
  }

  /**
   * @param {import("./client.js").Book} book
   * @param {string} rollup whose running window is meant
   */
  draw(book, rollup) {
    const readers = runningReaders(book);
    this.#set(this.readers, readers?.value ?? null, readers ? `different ones in ${readers.words}` : "this book does not count readers");
    const running = runningWindow(book, rollup);
    this.#set(this.clicks, running.value, running.words);
    const { on_time, late, received } = book.state.totals;
    this.#set(this.all, on_time + late, `of ${whole(received)} received`);
  }

  #set(number, value, hint) {
    attr(number.value, "data-value", value);
    text(number.value, value === null ? "–" : whole(value));
    text(number.hint, hint);
  }
}

/** Different readers in the window that has run longest; null if the book does not count them. */
function runningReaders(book) {
  const counts = [...book.state.rollups.values()].filter(({ spec }) =>
    spec.aggregate === "distinct" && spec.group_by === "book" && spec.window.kind !== "session"
    && (spec.of ?? "visitor") === "visitor");
  counts.sort((a, b) => a.spec.window.size_ms - b.spec.window.size_ms);
  const [rollup] = counts;
  if (!rollup) return null;
  const now = book.now();
  let longest = null;
  for (const window of rollup.windows.values()) {
    if (window.start <= now && now < window.end && (!longest || window.end < longest.end)) longest = window;
  }
  const value = longest ? amount(longest.values.get("")) || [...longest.values.values()].reduce((a, b) => a + amount(b), 0) : 0;
  return { value, words: span(rollup.spec.window.size_ms) };
}

function runningWindow(book, name) {
  const rollup = book.state.rollups.get(name);
  const length = step(rollup.spec);
  const now = book.now();
  let value = 0;
  for (const window of rollup.windows.values()) {
    if (window.start > now || now >= window.end || window.fired) continue;
    for (const shown of window.values.values()) value += amount(shown);
    if (rollup.spec.window.kind === "sliding") break;
  }
  return { value, words: `windows of ${span(rollup.spec.window.size_ms ?? length)}` };
}

/** What became of all clicks, and how far time has come. */
export class Details {
  constructor() {
    this.numbers = new Map();
    const list = el("dl", { class: "totals" });
    for (const [name, [word, meaning]] of Object.entries(TOTALS)) {
      const value = el("dd", { "data-total": name }, "–");
      this.numbers.set(name, value);
      list.append(el("div", { title: meaning }, el("dt", {}, word), value));
    }
    this.watermark = el("dd", { id: "watermark" });
    this.lag = el("dd", { id: "lag" });
    this.revision = el("dd", {});
    this.position = el("dd", { id: "position" });
    this.readers = el("dd", {});
    this.rollup = el("dd", {});
    this.root = el("section", { class: "card" },
      el("h2", {}, "What became of the clicks"), list,
      el("details", {}, el("summary", {}, "Details"),
        el("dl", { class: "totals" },
          el("div", {}, el("dt", {}, "Watermark: event time has come to"), this.watermark),
          el("div", {}, el("dt", {}, "Lag behind now"), this.lag),
          el("div", {}, el("dt", {}, "Revision"), this.revision),
          el("div", {}, el("dt", {}, "Position in the stream"), this.position),
          el("div", {}, el("dt", {}, "Counted by"), this.rollup))));
  }

  /** @param {import("./client.js").Book} book */
  draw(book, name) {
    const { state } = book;
    for (const [total, node] of this.numbers) {
      const value = state.totals[FIELDS[total] ?? total];
      attr(node, "data-value", value);
      text(node, whole(value));
    }
    const { watermark } = state;
    attr(this.watermark, "data-value", watermark);
    text(this.watermark, watermark === null ? "nothing yet" : watermark === Infinity ? "the end: the book is finished" : atMoment(watermark));
    text(this.lag, Number.isFinite(watermark ?? NaN) ? span(book.now() - watermark) : "–");
    text(this.revision, whole(state.revision));
    text(this.position, whole(state.position));
    text(this.rollup, rule(state.rollups.get(name).spec));
  }
}

/** How a rollup counts, in words. */
export function rule(spec) {
  const { kind, size_ms, slide_ms, gap_ms } = spec.window;
  const window = kind === "tumbling" ? `windows of ${span(size_ms)}`
    : kind === "sliding" ? `windows of ${span(size_ms)}, every ${span(slide_ms)}`
      : `visits that end after ${span(gap_ms)} of silence`;
  const what = spec.aggregate === "count" ? "clicks" : spec.aggregate === "distinct" ? `different ${spec.of ?? "visitor"}s` : `${spec.aggregate} of ${spec.of ?? "value"}`;
  return `${what} by ${spec.group_by}, ${window}`;
}
