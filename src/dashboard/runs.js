// Runs: imports and recounts, how far they are, and what they brought.

import { Refused } from "./api.js";
import { alert, ask, attr, el, text } from "./dom.js";
import { ago, atMoment, whole } from "./words.js";

const KINDS = { import: "Import", recount: "Recount" };

/** What a run has done so far, in words. */
function words(run) {
  const done = run.kind === "import"
    ? `${whole(run.processed)} lines read, ${whole(run.counted)} clicks new, ${whole(run.duplicates)} known already`
    : `${whole(run.processed)}${run.total === null ? "" : ` of ${whole(run.total)}`} clicks counted again`;
  const left = Object.entries(run.skipped ?? {}).filter(([, n]) => n > 0);
  const skipped = left.map(([rule, n]) => `${whole(n)} ${rule}`).join(", ");
  return [
    done,
    skipped && `left out: ${skipped}`,
    run.rejected > 0 && `${whole(run.rejected)} could not be read`,
    run.error,
  ].filter(Boolean).join("; ");
}

/** The list of a book's runs. */
export class Runs {
  #rows = new Map();

  /**
   * @param {import("./api.js").Api} api
   * @param {string} slug
   * @param {boolean} writable
   * @param {() => void} done something was asked for
   */
  constructor(api, slug, writable, done) {
    this.api = api;
    this.done = done;
    this.path = `/v1/books/${encodeURIComponent(slug)}/runs`;
    this.writable = writable;
    this.list = el("ul", { id: "runs", class: "runs" });
    this.said = el("div", {});
    this.root = el("section", { class: "card", "aria-labelledby": "runs-title" },
      el("h2", { id: "runs-title" }, "Imports and recounts"), this.list, this.said);
    if (writable) {
      const start = el("button", { type: "button", class: "quiet", onclick: () => this.#recount() }, "Recount all clicks");
      this.root.append(el("p", { class: "hint" },
        "Bring in years of access logs with ", el("code", {}, `pagetide import FILE --book ${slug} --format combined`), "."),
      start);
    }
  }

  /** @param {Iterable<object>} runs as the server gives them */
  draw(runs) {
    const newest = [...runs].sort((a, b) => Date.parse(b.started_at) - Date.parse(a.started_at));
    this.root.hidden = newest.length === 0 && !this.writable;
    let after = null;
    for (const run of newest) {
      const row = this.#row(run);
      const live = run.state === "running";
      text(row.title, `${KINDS[run.kind] ?? run.kind} · ${run.state}`);
      text(row.words, words(run));
      text(row.when, live ? `since ${ago(Date.parse(run.started_at))}` : atMoment(Date.parse(run.finished_at ?? run.started_at)));
      row.bar.hidden = !live;
      row.cancel.hidden = !live || !this.writable;
      if (run.total) {
        attr(row.bar, "max", run.total);
        attr(row.bar, "value", Math.min(run.processed, run.total));
      }
      attr(row.root, "data-state", run.state);
      attr(row.root, "data-processed", run.processed);
      const place = after ? after.nextSibling : this.list.firstChild;
      if (place !== row.root) this.list.insertBefore(row.root, place);
      after = row.root;
    }
    const known = new Set(newest.map((run) => run.id));
    for (const [id, row] of this.#rows) {
      if (known.has(id)) continue;
      row.root.remove();
      this.#rows.delete(id);
    }
  }

  #row(run) {
    let row = this.#rows.get(run.id);
    if (!row) {
      row = {
        title: el("strong", {}),
        when: el("span", { class: "hint" }),
        words: el("span", { class: "words" }),
        bar: el("progress", { "aria-label": `${KINDS[run.kind] ?? run.kind} in progress` }),
        cancel: el("button", { type: "button", class: "quiet", onclick: () => this.#cancel(run.id) }, "Cancel"),
      };
      row.root = el("li", { "data-run": run.id },
        el("div", { class: "row between" }, row.title, row.when), row.bar, row.words, row.cancel);
      this.#rows.set(run.id, row);
    }
    return row;
  }

  async #recount() {
    const sure = await ask({
      title: "Count all clicks again?",
      body: "Clicks that came too late come in, and changes of chapters apply to the past. The book goes on meanwhile.",
      yes: "Recount",
    });
    if (sure) this.#send(this.path, { kind: "recount" });
  }

  #cancel(id) {
    this.#send(`${this.path}/${id}/cancel`);
  }

  async #send(path, body) {
    this.said.replaceChildren();
    try {
      await this.api.call(path, { method: "POST", body });
      this.done();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.said.replaceChildren(alert(error.words));
    }
  }
}
