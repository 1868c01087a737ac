// Tables of groups, the greatest first, each with a small line of its values over time.

import { attr, el, svg, text } from "./dom.js";
import { whole } from "./words.js";

/** Rows that are shown, and those that are shown on demand. */
const FEW = 12;
const MANY = 500;

/** For how long rows keep their places after somebody moved over them. */
const STILL_MS = 3000;

/** A table of groups. */
export class GroupTable {
  #rows = new Map();
  #most = FEW;
  #order = [];

  /**
   * @param {{id: string, title: string, column: string, empty: string}} words
   * @param {(group: string) => string} [name] what a group is called
   */
  constructor({ id, title, column, empty }, name = (group) => group) {
    this.name = name;
    this.body = el("tbody", {});
    for (const event of ["pointermove", "keydown"]) {
      this.body.addEventListener(event, () => { this.#touched = performance.now(); });
    }
    this.empty = el("p", { class: "hint" }, empty);
    this.more = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#toggle() });
    this.note = el("span", { class: "hint" });
    this.table = el("table", { id },
      el("caption", {}, title, " ", this.note),
      el("thead", {}, el("tr", {},
        el("th", { scope: "col" }, column),
        el("th", { scope: "col", class: "number" }, "Clicks"),
        el("th", { scope: "col", class: "line" }, el("span", { class: "hidden" }, "Over time")))),
      this.body);
    this.root = el("section", { class: "card" }, this.table, this.empty, this.more);
  }

  /**
   * Draws what has changed.
   * @param {Map<string, number>} totals
   * @param {Set<string>|null} changed null: everything
   * @param {(group: string) => number[]|null} line
   */
  draw(totals, changed, line) {
    this.#last = [totals, line];
    // Rows stay where they are while somebody is about to use them.
    if (!changed || performance.now() - this.#touched > STILL_MS) {
      const greatest = [...totals].filter(([, value]) => value > 0);
      greatest.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
      this.#order = greatest.map(([group]) => group);
    }
    const shown = this.#order.slice(0, this.#most);
    const most = Math.max(1, ...shown.map((group) => totals.get(group) ?? 0));
    let after = null;
    for (const [place, group] of shown.entries()) {
      const row = this.#row(group);
      const value = totals.get(group) ?? 0;
      text(row.number, whole(value));
      text(row.label, this.name(group));
      attr(row.root, "data-value", value);
      row.root.style.setProperty("--share", value / most);
      const due = !row.line || !changed || changed.has(group);
      if (due && place < FEW) this.#line(row, line(group));
      const next = after ? after.nextSibling : this.body.firstChild;
      if (next !== row.root) this.body.insertBefore(row.root, next);
      after = row.root;
    }
    const stays = new Set(shown);
    for (const [group, row] of this.#rows) {
      if (stays.has(group)) continue;
      row.root.remove();
      this.#rows.delete(group);
    }
    this.empty.hidden = shown.length > 0;
    this.table.hidden = shown.length === 0;
    this.more.hidden = this.#order.length <= FEW;
    text(this.more, this.#most === FEW ? `Show all ${whole(Math.min(this.#order.length, MANY))}` : "Show fewer");
  }

  #last;
  #touched = -Infinity;

  #toggle() {
    this.#most = this.#most === FEW ? MANY : FEW;
    this.draw(this.#last[0], null, this.#last[1]);
  }

  #row(group) {
    let row = this.#rows.get(group);
    if (!row) {
      const number = el("td", { class: "number" });
      const spark = el("td", { class: "line" });
      const label = el("span", { class: "group", title: group });
      const heading = el("th", { scope: "row" }, label);
      row = { root: el("tr", { "data-group": group }, heading, number, spark), label, number, spark, line: null };
      this.#rows.set(group, row);
    }
    return row;
  }

  #line(row, values) {
    if (!values || values.length < 2) return;
    if (!row.line) {
      row.line = svg("path", {});
      row.spark.append(svg("svg", {
        viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true", class: "spark",
      }, row.line));
    }
    const most = Math.max(1, ...values);
    const points = values.map((value, i) =>
      `${((100 * i) / (values.length - 1)).toFixed(1)} ${(19 - (18 * value) / most).toFixed(1)}`);
    attr(row.line, "d", `M${points.join("L")}`);
  }
}

/**
 * What pages add up to, chapter by chapter.
 * @param {Array<{id: string, pages: string[]}>} chapters
 * @param {boolean} canonical whether the page of a folder has lost its slash
 */
export class Chapters {
  #exact = new Map();
  #below = [];

  constructor(chapters, canonical) {
    this.canonical = canonical;
    this.titles = new Map(chapters.map((chapter) => [chapter.id, chapter.title || chapter.id]));
    for (const chapter of chapters) {
      for (const page of chapter.pages) {
        if (page.endsWith("/*")) this.#below.push([page.slice(0, -1), chapter.id]);
        else this.#exact.set(page, chapter.id);
      }
    }
    // The nearest folder wins.
    this.#below.sort((a, b) => b[0].length - a[0].length);
  }

  /** The chapter of a page; `""` where there is none. */
  of(page) {
    const within = this.canonical && !page.endsWith("/") ? `${page}/` : page;
    return this.#exact.get(page) ?? this.#below.find(([start]) => within.startsWith(start))?.[1] ?? "";
  }

  /** Totals of pages as totals of chapters. */
  totals(pages) {
    const sums = new Map();
    for (const [page, value] of pages) {
      const chapter = this.of(page);
      sums.set(chapter, (sums.get(chapter) ?? 0) + value);
    }
    return sums;
  }

  /** The line of a chapter, out of those of its pages. */
  line(chapter, pages, line) {
    let sum = null;
    for (const page of pages) {
      if (this.of(page) !== chapter) continue;
      const values = line(page);
      if (!values) continue;
      sum = sum ? sum.map((value, i) => value + (values[i] ?? 0)) : [...values];
    }
    return sum;
  }
}
