// Which rollup, and which time: two selects, and two fields for a range of one's own.

import { LIVE_WINDOWS, addsUp, step } from "./series.js";
import { el } from "./dom.js";
import { span } from "./words.js";

const DAY = 86_400_000;

/** Ranges that end now, by their names. */
const LENGTHS = {
  day: ["24 hours", DAY],
  week: ["7 days", 7 * DAY],
  month: ["30 days", 30 * DAY],
  year: ["12 months", 365 * DAY],
};

/** The rollup that a book's page begins with: clicks by page in the shortest windows. */
export function firstRollup(rollups) {
  const pages = [...rollups].filter(({ spec }) => isByPage(spec));
  pages.sort((a, b) => step(a.spec) - step(b.spec));
  return (pages[0] ?? [...rollups][0]).name;
}

/** Whether a rollup says how often each page was read. */
export const isByPage = (spec) =>
  spec.group_by === "page" && spec.aggregate === "count" && spec.window.kind === "tumbling";

/** The controls. `chosen` is called with what was chosen. */
export class Controls {
  /** @param {() => void} chosen */
  constructor(chosen) {
    this.rollup = el("select", { id: "rollup", onchange: () => this.#change() });
    this.range = el("select", { id: "range", onchange: () => this.#change() });
    this.from = el("input", { type: "datetime-local", "aria-label": "From", id: "from", required: true });
    this.to = el("input", { type: "datetime-local", "aria-label": "To; now if empty", id: "to" });
    this.own = el("form", {
      class: "row", hidden: true, onsubmit: (event) => {
        event.preventDefault();
        this.chosen();
      },
    }, this.from, el("span", { "aria-hidden": "true" }, "–"), this.to, el("button", { type: "submit" }, "Show"));
    this.root = el("div", { class: "row controls" },
      el("label", {}, "Counted as ", this.rollup), el("label", {}, "Time ", this.range), this.own);
    this.chosen = chosen;
  }

  /** The rollups that there are to choose from, and the one that is chosen. */
  offer(rollups, name, range) {
    this.rollups = rollups;
    this.rollup.replaceChildren(...[...rollups.keys()].map((rollup) => el("option", { value: rollup }, rollup)));
    this.rollup.value = name;
    this.#offerRanges();
    this.range.value = range;
    this.own.hidden = range !== "own";
  }

  #offerRanges() {
    const { spec } = this.rollups.get(this.rollup.value);
    const live = el("option", { value: "live" }, `Live: ${span(LIVE_WINDOWS * step(spec))}`);
    const past = spec.window.kind === "tumbling" && !["first", "last", "top"].includes(spec.aggregate)
      ? [
        ...Object.entries(LENGTHS).map(([value, [words]]) => el("option", { value }, words)),
        el("option", { value: "all" }, "All"),
        el("option", { value: "own" }, "From … to …"),
      ] : [];
    const before = this.range.value || "live";
    this.range.replaceChildren(live, ...past);
    this.range.value = before;
    if (this.range.value !== before) this.range.value = "live";
  }

  #change() {
    this.#offerRanges();
    this.own.hidden = this.range.value !== "own";
    if (this.range.value === "own" && !this.from.value) return this.from.focus();
    this.chosen();
  }

  /** @returns {{rollup: string, past: null|{from: number|null, to: number|null, length: number|null}}} */
  get choice() {
    const rollup = this.rollup.value;
    switch (this.range.value) {
      case "live":
        return { rollup, past: null };
      case "all":
        return { rollup, past: { from: null, to: null, length: null } };
      case "own": {
        const to = this.to.value ? new Date(this.to.value).getTime() : Date.now();
        return { rollup, past: { from: new Date(this.from.value).getTime(), to, length: null } };
      }
      default:
        return { rollup, past: { from: null, to: null, length: LENGTHS[this.range.value][1] } };
    }
  }
}

/** The rollup that tells how often pages were read in the time that another one shows. */
export function pagesBeside(rollups, name) {
  const { spec } = rollups.get(name);
  if (isByPage(spec)) return name;
  const pages = [...rollups.values()].filter((rollup) => isByPage(rollup.spec));
  const far = (rollup) => Math.abs(Math.log(step(rollup.spec) / step(spec)));
  pages.sort((a, b) => far(a) - far(b));
  return pages[0]?.name ?? (addsUp(spec) ? name : null);
}
