// What the owner of a book does: share it, show a public counter, finish it.

import { Refused } from "./api.js";
import { alert, ask, el, text } from "./dom.js";

/** The address at which people reach this server. */
export function publicUrl() {
  const told = document.querySelector('meta[name="pagetide-public-url"]')?.content;
  return told || location.origin;
}

/** A field whose content can be taken along. */
export function copyable(label, content) {
  const field = el("textarea", { readonly: true, rows: 2, "aria-label": label, spellcheck: "false" });
  field.value = content;
  const said = el("span", { class: "hint", role: "status" });
  const copy = el("button", {
    type: "button", onclick: async () => {
      field.select();
      try {
        await navigator.clipboard.writeText(content);
        text(said, "Copied.");
      } catch {
        text(said, "Selected: copy it with your keyboard.");
      }
    },
  }, "Copy");
  return el("div", { class: "copyable" }, field, el("div", { class: "row" }, copy, said));
}

/** The owner's part of a book's page. */
export class Manage {
  /**
   * @param {object} app
   * @param {import("./client.js").Book} book
   */
  constructor(app, book) {
    this.api = app.api;
    this.book = book;
    this.path = `/v1/books/${encodeURIComponent(book.state.book.slug)}`;
    this.said = el("div", {});
    this.link = el("div", {});
    this.counter = el("input", { type: "checkbox", id: "public-counter", onchange: () => this.#count() });
    this.badge = el("div", {});
    this.finish = el("button", { type: "button", class: "danger", id: "finish", onclick: () => this.#finish() });
    this.root = el("section", { class: "card", "aria-labelledby": "manage-title" },
      el("h2", { id: "manage-title" }, "This book"), this.said,
      el("h3", {}, "Share"),
      el("p", { class: "hint" }, "Whoever has the link sees these numbers live and can change nothing."),
      el("button", { type: "button", id: "share", onclick: () => this.#share() }, "Make a link"), this.link,
      el("h3", {}, "Public counter"),
      el("label", { class: "row" }, this.counter, "Anyone may ask how many read this book now, and how often it was read"),
      this.badge,
      el("h3", {}, "Finish"),
      el("p", { class: "hint" }, "No more clicks are taken, and all numbers become final. It can be reopened."),
      this.finish);
    this.draw();
  }

  draw() {
    const { slug, status, settings } = this.book.state.book;
    text(this.finish, status === "closed" ? "Reopen book" : "Finish book");
    if (!this.counter.disabled) this.counter.checked = settings.public_counter;
    if (settings.public_counter === this.shown) return;
    this.shown = settings.public_counter;
    const url = publicUrl();
    this.badge.replaceChildren(...(settings.public_counter ? [
      copyable("HTML of the badge", `<img src="${url}/badge/${slug}.svg" alt="Readers of this book">`),
      el("p", { class: "hint" }, "As JSON: ", el("code", {}, `${url}/v1/books/${slug}/public`)),
    ] : []));
  }

  async #call(path, options) {
    this.said.replaceChildren();
    try {
      const done = await this.api.call(path, options);
      this.book.refresh();
      return { done };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.said.replaceChildren(alert(error.words));
      return null;
    }
  }

  async #share() {
    const { id, slug } = this.book.state.book;
    const body = { books: [id], scopes: ["read"], label: "share link" };
    const made = await this.#call("/v1/tokens", { method: "POST", body });
    if (!made) return;
    const url = `${publicUrl()}/share/${slug}#${made.done.token}`;
    this.link.replaceChildren(copyable("Link to share", url),
      el("p", { class: "hint" }, "It is shown this once. Taking it back is done under Keys."));
  }

  async #count() {
    const body = { settings: { public_counter: this.counter.checked } };
    this.counter.disabled = true;
    const changed = await this.#call(this.path, { method: "PATCH", body });
    this.counter.disabled = false;
    if (changed) this.book.state.book.settings = changed.done.settings;
    this.draw();
  }

  async #finish() {
    const { status, title } = this.book.state.book;
    if (status === "closed") return void this.#call(`${this.path}/reopen`, { method: "POST" });
    const sure = await ask({
      title: `Finish “${title}”?`,
      body: "Clicks that are sent afterwards are refused, and every window is counted to its end.",
      yes: "Finish book",
    });
    if (sure) this.#call(`${this.path}/close`, { method: "POST" });
  }
}
