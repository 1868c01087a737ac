// Notes: what happened when, on the axis of the chart and in a list, added and changed in place.

import { Refused } from "./api.js";
import { alert, ask, el } from "./dom.js";
import { atMoment } from "./words.js";

/** A moment as a field for local time has it. */
function local(ms) {
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return date.toISOString().slice(0, 19);
}

/** The list of a book's notes, and the form for a new one. */
export class Notes {
  #rows = new Map();

  /**
   * @param {import("./api.js").Api} api
   * @param {string} slug
   * @param {boolean} writable the viewer may change them
   * @param {() => void} done something was changed
   */
  constructor(api, slug, writable, done) {
    this.api = api;
    this.done = done;
    this.path = `/v1/books/${encodeURIComponent(slug)}/notes`;
    this.writable = writable;
    this.list = el("ol", { id: "notes", class: "notes" });
    this.empty = el("p", { class: "hint" }, "No notes yet.");
    this.said = el("div", {});
    this.root = el("section", { class: "card", "aria-labelledby": "notes-title" },
      el("h2", { id: "notes-title" }, "Notes"), this.list, this.empty, this.said);
    if (writable) this.root.append(this.#form(null, () => {}));
  }

  /** @param {Iterable<object>} notes as the server gives them */
  draw(notes) {
    const newest = [...notes].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
    const rows = newest.map((note) => {
      const known = this.#rows.get(note.id);
      // What has not changed, or is being changed, stays, with the focus in it.
      if (known && (known.said === JSON.stringify(note) || known.row.querySelector("form"))) return known.row;
      const row = this.#row(note);
      this.#rows.set(note.id, { row, said: JSON.stringify(note) });
      return row;
    });
    const ids = new Set(newest.map((note) => note.id));
    for (const id of this.#rows.keys()) if (!ids.has(id)) this.#rows.delete(id);
    if (rows.length !== this.list.children.length || rows.some((row, i) => row !== this.list.children[i])) {
      this.list.replaceChildren(...rows);
    }
    this.empty.hidden = newest.length > 0;
  }

  /** Shows one of them. */
  show(id) {
    const row = this.list.querySelector(`[data-note="${CSS.escape(id)}"]`);
    row?.scrollIntoView({ block: "nearest" });
    row?.focus();
  }

  #row(note) {
    const row = el("li", { "data-note": note.id, tabindex: -1 },
      el("time", { datetime: note.at }, atMoment(Date.parse(note.at))), " ",
      el("span", { class: "words" }, note.text),
      note.page ? el("code", {}, note.page) : null);
    if (this.writable) {
      row.append(
        el("button", {
          type: "button", class: "quiet", "aria-label": `Change the note “${note.text}”`,
          onclick: () => {
            row.replaceChildren(this.#form(note, () => this.#redraw(note)));
            row.querySelector("input").focus();
          },
        }, "Change"),
        el("button", {
          type: "button", class: "quiet", "aria-label": `Remove the note “${note.text}”`,
          onclick: async () => {
            const sure = await ask({ title: "Remove this note?", body: note.text, yes: "Remove" });
            if (sure) this.#send(`${this.path}/${note.id}`, "DELETE");
          },
        }, "Remove"));
    }
    return row;
  }

  #form(note, cancelled) {
    const words = el("input", {
      type: "text", required: true, maxlength: 2000, value: note?.text, placeholder: "Chapter 3 is out",
      "aria-label": note ? "Text of the note" : "A new note",
    });
    const at = el("input", {
      type: "datetime-local", step: 1, "aria-label": "When; now if empty", value: note && local(Date.parse(note.at)),
    });
    const form = el("form", {
      class: "row note-form",
      onsubmit: async (event) => {
        event.preventDefault();
        const body = { text: words.value };
        if (at.value) body.at = new Date(at.value).toISOString();
        const sent = note
          ? await this.#send(`${this.path}/${note.id}`, "PATCH", body)
          : await this.#send(this.path, "POST", body);
        if (!sent) return;
        if (note) this.#redraw({ ...note, ...body });
        else form.reset();
      },
    }, words, at, el("button", { type: "submit" }, note ? "Save" : "Add note"));
    if (note) form.append(el("button", { type: "button", class: "quiet", onclick: cancelled }, "Cancel"));
    return form;
  }

  /** Shows a note in the place where it was changed. */
  #redraw(note) {
    const row = this.#row(note);
    this.#rows.get(note.id)?.row.replaceWith(row);
    this.#rows.set(note.id, { row, said: JSON.stringify(note) });
    row.querySelector("button")?.focus();
  }

  /** What has changed comes back by the stream. */
  async #send(path, method, body) {
    this.said.replaceChildren();
    try {
      await this.api.call(path, { method, body });
      this.done();
      return true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.said.replaceChildren(alert(error.words));
      return false;
    }
  }
}
