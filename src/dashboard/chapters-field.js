// Where chapters are typed, pasted, or taken from a file, and shown before they are saved.

import { el, text } from "./dom.js";
import { Field } from "./field.js";
import { fromLines, read, toLines, withIds } from "./structure.js";
import { count } from "./words.js";

/** Most bytes of a file that are read: a sitemap of fifty thousand pages has fewer. */
const MAX_FILE_BYTES = 20_000_000;

/** Most rows of the preview, and most pages in one. */
const MAX_ROWS = 300;
const MAX_PAGES = 12;

const FORMS = { summary: "an mdBook’s SUMMARY.md", sitemap: "a sitemap" };

/** The field, and below it what the chapters will be. */
export class ChaptersField {
  /** @type {import("./structure.js").Reading} */
  #reading = fromLines("");
  /** What was taken over last: as it was, and the lines that came of it. */
  #last = { source: "", lines: "" };
  #frame = 0;

  /** @param {(taken: import("./structure.js").Reading) => void} taken called with what was pasted or chosen */
  constructor(taken) {
    this.taken = taken;
    const input = el("textarea", {
      rows: 8, spellcheck: "false", placeholder: "Introduction: /\nThe first chapter: /ch01, /ch01/*\n/ch02",
      oninput: () => { this.#frame ||= requestAnimationFrame(() => this.#look()); },
      onpaste: (event) => this.#pasted(event, event.clipboardData),
      ondragover: (event) => event.preventDefault(),
      ondrop: (event) => this.#pasted(event, event.dataTransfer),
    });
    this.field = new Field({ id: "chapters", label: "Chapters (optional)", input },
      "One a line, ", el("code", {}, "Title: /page, /folder/*"), ", or a page alone. Or paste or drop here a ",
      el("code", {}, "sitemap.xml"), " or the ", el("code", {}, "SUMMARY.md"), " of an mdBook.");
    this.file = el("input", {
      type: "file", id: "chapters-file", accept: ".md,.xml,.txt,.gz,text/plain,text/markdown,text/xml",
      onchange: () => this.#chosen(this.file.files[0]),
    });
    this.said = el("div", { class: "taken", role: "status" });
    this.summary = el("caption", {});
    this.rows = el("tbody", {});
    this.more = el("p", { class: "hint", hidden: true });
    this.preview = el("div", { class: "preview", hidden: true, tabindex: "0", role: "region", "aria-label": "Preview" }, el("table", {}, this.summary,
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Chapter"), el("th", { scope: "col" }, "Pages"))), this.rows),
      this.more);
    this.root = el("div", { class: "chapters" }, this.field.root,
      el("div", { class: "field" }, el("label", { for: "chapters-file" }, "Or take them from a file"), this.file),
      this.said, this.preview);
  }

  /** The chapters as the server takes them. Says what cannot be read, and gives null then. */
  get value() {
    this.#look();
    const { problems, chapters } = this.#reading;
    if (problems.length > 0) this.#fail(problems.map(({ line, words }) => (line ? `Line ${line}: ${words}` : words)));
    return problems.length > 0 ? null : withIds(chapters);
  }

  /** Says what the server finds wrong; it names chapters by their place. */
  refused(errors) {
    this.#fail(errors.map(({ index, detail }) => {
      const chapter = this.#reading.chapters[index];
      return chapter ? `Line ${chapter.line}, “${chapter.title}”: ${detail}` : detail;
    }));
  }

  #fail(lines) {
    const shown = lines.slice(0, 10).map((line) => el("span", {}, line));
    if (lines.length > 10) shown.push(el("span", {}, `… and ${count(lines.length - 10, "more line")}`));
    this.field.fail(...shown);
  }

  /** What stands in the field now. */
  #look() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#reading = fromLines(this.field.input.value);
    this.#draw();
  }

  #pasted(event, data) {
    if (this.field.input.readOnly) return;
    const [file] = data?.files ?? [];
    const source = file ? "" : data?.getData("text/plain") ?? "";
    // Lines are pasted as they are.
    if (!file && read(source).kind === "lines") return;
    event.preventDefault();
    if (file) this.#chosen(file);
    else this.#take(source, read(source));
  }

  async #chosen(file) {
    if (!file) return;
    try {
      const source = await contents(file);
      this.#take(source, read(source));
    } catch (error) {
      this.#fail([error instanceof TooLarge ? "The file is larger than 20 MB." : "The file cannot be read as text."]);
    }
    // The same file may be chosen again.
    this.file.value = "";
  }

  /** Puts what was read into the field, as lines that can be changed. */
  #take(source, reading) {
    if (reading.kind === "lines") return this.#insert(source, source);
    if (reading.problems.length > 0) return this.#fail(reading.problems.map(({ words }) => words));
    if (reading.chapters.length === 0) return this.#fail(["There are no chapters in it."]);
    this.#insert(source, toLines(reading.chapters));
    const notes = [`Taken from ${FORMS[reading.kind]}`, ...reading.notes].join("; ");
    this.said.replaceChildren(el("div", { class: "notice" }, `${notes}. Change it as you like.`, this.#ways(reading)));
    this.taken(reading);
  }

  /** In place of what was taken over before, if that stands there as it was; else behind what does. */
  #insert(source, lines) {
    const { input } = this.field;
    const { value } = input;
    const before = this.#last.lines;
    const at = before === "" ? -1 : value.indexOf(before);
    if (at >= 0) input.setRangeText(lines, at, at + before.length, "end");
    else input.setRangeText(value.trim() === "" ? lines : `\n${lines}`, value.trim() === "" ? 0 : value.length, value.length, "end");
    this.#last = { source, lines };
    this.said.replaceChildren();
    this.field.fail();
    this.#look();
  }

  /** A sitemap does not say what a chapter is. */
  #ways({ kind }) {
    if (kind !== "sitemap") return null;
    const way = (each, words) => el("button", {
      type: "button", class: "quiet", "data-each": each,
      onclick: () => this.#take(this.#last.source, read(this.#last.source, each)),
    }, words);
    return el("div", { class: "row" }, way("folder", "A chapter for each folder"), way("page", "A chapter for each page"));
  }

  #draw() {
    const { chapters } = this.#reading;
    const pages = chapters.reduce((sum, chapter) => sum + chapter.pages.length, 0);
    this.preview.hidden = chapters.length === 0;
    text(this.summary, `${count(chapters.length, "chapter")}, ${count(pages, "page")}`);
    this.rows.replaceChildren(...chapters.slice(0, MAX_ROWS).flatMap(row));
    this.more.hidden = chapters.length <= MAX_ROWS;
    text(this.more, `… and ${count(chapters.length - MAX_ROWS, "more chapter")}`);
  }
}

function row({ title, pages, part }) {
  const shown = pages.slice(0, MAX_PAGES).map((page) => el("li", {}, el("code", {}, page)));
  if (pages.length > MAX_PAGES) shown.push(el("li", { class: "hint" }, `and ${pages.length - MAX_PAGES} more`));
  const chapter = el("tr", {}, el("th", { scope: "row" }, title), el("td", {}, el("ul", {}, ...shown)));
  if (!part) return [chapter];
  return [el("tr", { class: "part" }, el("th", { scope: "colgroup", colspan: 2 }, part)), chapter];
}

class TooLarge extends Error {}

/** The text of a file; of one in gzip, as sitemaps are, unpacked. */
async function contents(file) {
  if (file.size > MAX_FILE_BYTES) throw new TooLarge();
  const start = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const packed = start[0] === 0x1f && start[1] === 0x8b;
  const stream = packed ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let whole = "";
  const reader = stream.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    whole += decoder.decode(part.value, { stream: true });
    if (whole.length > MAX_FILE_BYTES) throw new TooLarge();
  }
  return whole + decoder.decode();
}
