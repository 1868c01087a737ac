// One book's page: it follows the book, and draws what has changed, a few times a second at most.

import { Book } from "/client.js";
import { Refused } from "./api.js";
import { Chart } from "./chart.js";
import { alert, el, text } from "./dom.js";
import { Manage } from "./manage.js";
import { Notes } from "./notes.js";
import { Controls, firstRollup, pagesBeside } from "./range.js";
import { Runs } from "./runs.js";
import { LiveSeries } from "./live-series.js";
import { PastSeries } from "./past-series.js";
import { step } from "./series.js";
import { Connection, Details, Now } from "./status.js";
import { Chapters, GroupTable } from "./tables.js";
import { snippetPanel } from "./new.js";
import { span, zone } from "./words.js";

/** Shortest time between two drawings. */
const DRAW_MS = 200;

/**
 * Shows a book until the function that it gives is called.
 * @param {HTMLElement} root
 * @param {object} app
 * @param {string} slug
 * @param {{shared: boolean, left: AbortSignal}} how shared: read-only, with the token of the link; left:
 *   told when the view is left, which may be before it is there
 * @returns {Promise<() => void>}
 */
export async function bookView(root, app, slug, { shared, left }) {
  const book = new Book({
    book: slug, url: location.origin, session: shared ? () => app.api.renew() : undefined,
  });
  left.addEventListener("abort", () => book.close());
  const connection = new Connection();
  root.append(connection.root);
  await known(book, connection);
  connection.root.remove();
  const may = shared ? { manage: false, shared } : await permissions(app.api, book.state.book);
  const page = new Page(app, book, may);
  root.append(page.root);
  return () => page.close();
}

/** Waits for the first snapshot, and says why it does not come; a refusal is thrown. */
function known(book, connection) {
  return new Promise((done, refused) => {
    const look = () => {
      connection.draw(book);
      const { state, reason } = book.connection;
      if (state === "denied") {
        book.close();
        return refused(new Refused(Number(reason), {}));
      }
      if (book.state) {
        book.removeEventListener("connection", look);
        book.removeEventListener("change", look);
        done();
      }
    };
    book.addEventListener("connection", look);
    book.addEventListener("change", look);
    book.start();
  });
}

/** What the viewer may do with the book. */
async function permissions(api, { id, slug }) {
  try {
    const caller = await api.call("/v1/sessions/current");
    const books = caller.books ?? [];
    const here = books.includes("*") || books.includes(id) || books.includes(slug);
    return { manage: caller.admin || (here && caller.scopes.includes("manage")), admin: caller.admin };
  } catch (error) {
    if ([401, 403, 404].includes(error.status)) return { manage: false };
    throw error;
  }
}

/** The page of a book that is known. */
class Page {
  #frame = 0;
  #drawnAt = 0;
  #stale = { all: true, notes: true, runs: true, chapters: true };
  #asking = 0;

  constructor(app, book, may) {
    this.app = app;
    this.shared = may.shared === true;
    this.book = book;
    const { slug } = book.state.book;
    this.connection = new Connection();
    this.now = new Now();
    this.chart = new Chart();
    this.details = new Details();
    this.controls = new Controls(() => this.#choose());
    // Of a finished book no stream tells what was done.
    const done = () => book.refresh();
    this.notes = new Notes(app.api, slug, may.manage, done);
    this.runs = new Runs(app.api, slug, may.manage, done);
    this.manage = may.manage ? new Manage(app, book) : null;
    this.pages = new GroupTable({ id: "pages", title: "Pages", column: "Page", empty: "No clicks in this time." });
    this.chapters = new GroupTable(
      { id: "chapters", title: "Chapters", column: "Chapter", empty: "No clicks in chapters in this time." },
      (id) => (id === "" ? "In no chapter" : this.structure.titles.get(id) ?? id));
    this.title = el("h1", {});
    this.words = el("span", {});
    this.login = el("button", { type: "button", hidden: true, onclick: () => app.login() }, "Log in again");
    this.banner = el("p", { class: "notice row between", role: "status", hidden: true }, this.words, this.login);
    this.failed = el("div", { class: "failed" });
    this.subtitle = el("span", { class: "hint" });
    this.root = this.#layout(may);
    this.#begin();
  }

  #layout(may) {
    const csv = el("button", { type: "button", class: "quiet", id: "csv", onclick: () => this.#csv() }, "CSV");
    this.waiting = el("section", { class: "card empty", hidden: true },
      el("h2", {}, "Waiting for the first click"),
      el("p", {}, may.manage
        ? "Paste one line into the book’s pages. This page turns to live by itself."
        : "Nobody has read this book yet. This page turns to live by itself."));
    const keys = may.manage
      ? el("details", { class: "card", id: "keys" }, el("summary", {}, "Snippet and keys"))
      : null;
    keys?.addEventListener("toggle", async () => {
      if (keys.open && keys.childElementCount === 1) keys.append(await snippetPanel(this.app, this.book.state.book));
    });
    return el("article", { class: "book" },
      el("div", { class: "row between head" }, this.title, this.connection.root),
      this.banner, this.waiting, this.now.root,
      el("section", { class: "card", "aria-labelledby": "chart-title" },
        el("div", { class: "row between" }, el("h2", { id: "chart-title" }, "Clicks over time"), csv),
        this.controls.root, this.failed, this.chart.root,
        el("p", { class: "row between" }, el("span", { class: "hint" }, `Times are in your zone, ${zone}.`), this.subtitle)),
      el("div", { class: "columns" }, this.pages.root, this.chapters.root),
      el("div", { class: "columns" }, this.notes.root, this.details.root),
      this.runs.root, keys, this.manage?.root, this.connection.last);
  }

  #begin() {
    const { rollups } = this.book.state;
    const name = firstRollup(rollups.values());
    // A book that was read long ago begins with all of its past.
    let newest = -Infinity;
    for (const window of rollups.get(name).windows.values()) newest = Math.max(newest, window.end);
    const old = newest > -Infinity && this.book.now() - newest > 86_400_000;
    const past = [...rollups.values()].filter(({ spec }) => spec.group_by === "page" && spec.window.kind === "tumbling");
    past.sort((a, b) => step(b.spec) - step(a.spec));
    this.controls.offer(rollups, old && past[0] ? past[0].name : name, old && past[0] ? "all" : "live");
    this.onChange = (event) => this.#changed(event.detail);
    this.onConnection = () => this.#schedule();
    this.book.addEventListener("change", this.onChange);
    this.book.addEventListener("connection", this.onConnection);
    this.ticking = setInterval(() => this.#tick(), 1000);
    this.#choose();
  }

  close() {
    this.#asking += 1;
    this.closed = true;
    this.book.removeEventListener("change", this.onChange);
    this.book.removeEventListener("connection", this.onConnection);
    this.book.close();
    clearInterval(this.ticking);
    cancelAnimationFrame(this.#frame);
    this.series?.close();
    if (this.beside !== this.series) this.beside?.close();
  }

  /** Another rollup, or another time. */
  async #choose() {
    const asking = ++this.#asking;
    const { rollup, past } = this.controls.choice;
    const { rollups } = this.book.state;
    const beside = pagesBeside(rollups, rollup);
    this.changedSince = false;
    const make = async (name) => {
      if (!past) return new LiveSeries(this.book, name);
      const page = { now: () => this.book.now(), drawn: () => this.#schedule() };
      const series = new PastSeries(this.app.api, this.book.state.book.slug, rollups.get(name).spec, past, page);
      await series.open();
      return series;
    };
    this.chart.root.setAttribute("aria-busy", "true");
    try {
      const series = await make(rollup);
      const pages = beside === null ? null : beside === rollup ? series : await make(beside);
      if (asking !== this.#asking) return void [series, pages].forEach((s) => s?.close());
      this.series?.close();
      if (this.beside !== this.series) this.beside?.close();
      this.series = series;
      this.beside = pages;
      this.refused = null;
      // What came while they were asked for, nobody has told them.
      if (this.changedSince && past) this.#tell({ all: true, panes: [] });
      this.#stale.all = true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (asking === this.#asking) this.refused = error;
    } finally {
      if (asking === this.#asking) this.chart.root.removeAttribute("aria-busy");
    }
    this.#schedule();
  }

  #changed(detail) {
    if (detail.all) {
      Object.assign(this.#stale, { notes: true, runs: true, chapters: true });
      const { rollups } = this.book.state;
      if (specs(rollups) !== specs(this.controls.rollups)) {
        const kept = rollups.has(this.series?.name) ? this.series.name : firstRollup(rollups.values());
        this.controls.offer(rollups, kept, "live");
        this.#choose();
        return;
      }
      this.controls.rollups = rollups;
    }
    if (detail.type === "note") this.#stale.notes = true;
    if (detail.type === "progress") this.#stale.runs = true;
    if (detail.type === "chapter") this.#stale.chapters = true;
    this.changedSince = true;
    this.#tell(detail);
    this.#schedule();
  }

  #tell(detail) {
    this.series?.change(detail);
    if (this.beside !== this.series) this.beside?.change(detail);
  }

  #tick() {
    this.series?.tick();
    if (this.beside !== this.series) this.beside?.tick();
    this.#schedule();
  }

  #schedule() {
    if (this.#frame || this.closed) return;
    const draw = () => {
      this.#frame = 0;
      if (performance.now() - this.#drawnAt < DRAW_MS) return this.#schedule();
      this.#drawnAt = performance.now();
      this.#draw();
    };
    this.#frame = requestAnimationFrame(draw);
  }

  #draw() {
    const { book } = this;
    const { state } = book;
    const stale = this.#stale;
    this.connection.draw(book);
    text(this.title, state.book.title);
    this.app.title(state.book.title);
    this.now.draw(book, this.controls.rollup.value);
    this.details.draw(book, this.controls.rollup.value);
    this.waiting.hidden = state.watermark !== null;
    this.#sayWhatHasEnded();
    if (stale.chapters) this.structure = new Chapters(state.chapters, state.book.settings.canonical_pages);
    if (this.series) this.#drawSeries(stale);
    this.#sayWhatFailed();
    if (stale.notes || stale.all) {
      const notes = [...state.notes.values()];
      this.notes.draw(notes);
      this.chart.notes(notes, (id) => this.notes.show(id));
    }
    if (stale.runs) this.runs.draw(state.runs.values());
    this.manage?.draw();
    this.#stale = { all: false, notes: false, runs: false, chapters: false };
    this.#announce();
  }

  #sayWhatHasEnded() {
    const { connection, state } = this.book;
    const loggedOut = connection.state === "denied" && connection.reason === "401" && !this.shared;
    this.banner.hidden = state.book.status !== "closed" && !loggedOut;
    text(this.words, loggedOut ? "Your login has ended; the numbers are as they were." : "This book is finished: every number is final.");
    this.login.hidden = !loggedOut;
  }

  #sayWhatFailed() {
    const words = (this.refused ?? this.series?.failed)?.words;
    if (words === this.said) return;
    this.said = words;
    this.failed.replaceChildren(...(words ? [alert(words)] : []));
  }

  #drawSeries(stale) {
    const { series, beside } = this;
    if (series.all || stale.all) this.chart.reset(series);
    else {
      this.chart.move(series);
      if (series.bars.size > 0) this.chart.update(series, series.bars);
    }
    if (beside) this.#drawTables(stale.all || stale.chapters);
    this.pages.root.hidden = beside === null;
    this.chapters.root.hidden = beside === null || this.book.state.chapters.length === 0;
    text(this.subtitle, series.truncated ? "Of the largest windows, the greatest groups." : "");
    for (const drawn of new Set([series, beside])) {
      if (!drawn) continue;
      drawn.all = false;
      drawn.moved = false;
      drawn.bars.clear();
      drawn.groups.clear();
    }
  }

  #drawTables(stale) {
    const { beside } = this;
    const live = beside instanceof LiveSeries;
    const anew = beside.all || beside.moved || stale;
    if (anew || beside.groups.size > 0) {
      const line = (group) => beside.line(group);
      this.pages.draw(beside.totals, anew ? null : beside.groups, line);
      // Of the past each line is a question of its own: pages alone are worth it.
      this.#drawChapters(anew, live ? line : () => null);
    }
    const when = live ? `newest ${span(beside.to - beside.from)}` : "in the time shown";
    text(this.pages.note, when);
    text(this.chapters.note, when);
  }

  #drawChapters(anew, line) {
    const { beside, structure } = this;
    if (this.book.state.chapters.length === 0) return;
    const changed = anew ? null : new Set([...beside.groups].map((page) => structure.of(page)));
    const pages = [...beside.totals.keys()];
    this.chapters.draw(structure.totals(beside.totals), changed, (id) => structure.line(id, pages, line));
  }

  /** Tells a page that shows this one in a frame what is shown. Who may do that, the server says. */
  #announce() {
    if (window.parent === window) return;
    const { position, totals, book } = this.book.state;
    window.parent.postMessage({
      pagetide: { book: book.slug, position, totals: { ...totals }, state: this.book.connection.state },
    }, "*");
  }

  /** What the chart shows, group by group, as a file. */
  async #csv() {
    const { series } = this;
    this.refused = null;
    const asked = { rollup: series.name, from: new Date(series.from).toISOString(), to: new Date(series.to).toISOString(), ...series.cut };
    const path = `/v1/books/${encodeURIComponent(this.book.state.book.slug)}/counts?${new URLSearchParams(asked)}`;
    try {
      const csv = await this.app.api.call(path, { headers: { accept: "text/csv" }, as: "text" });
      const link = el("a", {
        href: URL.createObjectURL(new Blob([csv], { type: "text/csv" })),
        download: `${this.book.state.book.slug}-${series.name}.csv`,
      });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.refused = error;
      this.#schedule();
    }
  }
}

/** The rollups of a book, to see whether they are others. */
const specs = (rollups) => JSON.stringify([...rollups.values()].map(({ spec }) => spec));
