// What a book's author pastes into its pages, and the keys that stand in it.

import { Refused } from "./api.js";
import { alert, ask, el } from "./dom.js";
import { copyable, publicUrl } from "./manage.js";
import { onDay } from "./words.js";

/** What keys made here are called in lists. */
const LABEL = "beacon";

/**
 * Makes a key that can do nothing but write to one book.
 * @param {import("./api.js").Api} api
 * @param {string} id of the book
 * @returns {Promise<string>}
 */
export async function newKey(api, id) {
  const body = { books: [id], scopes: ["write"], label: LABEL };
  return (await api.call("/v1/tokens", { method: "POST", body })).token;
}

/** The lines to paste, for a book and a key of it. */
export function snippets(slug, key) {
  const path = document.querySelector('meta[name="pagetide-beacon-path"]')?.content;
  const beacon = publicUrl() + (path || "/beacon.js");
  return el("div", { class: "snippets" },
    el("h3", {}, "Any page"),
    el("p", {}, "Into the ", el("code", {}, "<head>"), " of every page:"),
    named("page", copyable("Snippet for any page",
      `<script defer src="${beacon}" data-book="${slug}" data-key="${key}"></script>`)),
    el("h3", {}, "mdBook"),
    el("p", {}, "Into the file ", el("code", {}, "theme/head.hbs"), " of the book:"),
    named("mdbook", copyable("Snippet for mdBook",
      `<script defer src="${beacon}?book=${slug}&key=${key}"></script>`)),
    el("p", { class: "hint" }, "The key can send clicks to this book and nothing else, so it may stand in public pages. ",
      "On your own machine (localhost) the line says nothing, unless you add ", el("code", {}, "data-local"),
      " to it (or ", el("code", {}, "&local=1"), " to its address)."));
}

function named(name, copy) {
  const field = copy.querySelector("textarea");
  field.dataset.snippet = name;
  field.rows = 5;
  return copy;
}

/**
 * The keys and share links of a book, with a button that makes another key. For whoever manages it.
 * @param {object} app
 * @param {{id: string, slug: string}} book
 * @returns {Promise<HTMLElement>}
 */
export async function snippetPanel(app, book) {
  const panel = new Panel(app.api, book);
  await panel.list();
  return panel.root;
}

class Panel {
  constructor(api, book) {
    Object.assign(this, { api, book });
    this.said = el("div", {});
    this.made = el("div", {});
    this.keys = el("ul", { class: "keys", "aria-label": "Keys and share links" });
    this.add = el("button", { type: "button", id: "new-key", onclick: () => this.#add() }, "Make a new key");
    this.root = el("div", { class: "snippet-panel" },
      el("p", { class: "hint" }, "A key is shown once, when it is made. Those before it go on until they are taken back."),
      this.add, this.said, this.made, this.keys);
  }

  /** Shows the keys as they are now. */
  async list() {
    const all = await this.#try(() => this.api.all("/v1/tokens"));
    if (!all) return;
    // What manages belongs to people, and is theirs to take back.
    const own = all.filter(({ books, scopes }) =>
      books.length === 1 && books[0] === this.book.id && scopes.every((s) => s === "write" || s === "read"));
    this.keys.replaceChildren(...own.map((token) => this.#row(token)));
    if (own.length === 0) this.keys.append(el("li", { class: "hint" }, "There are none."));
  }

  #row({ id, label, scopes, expires_at: until }) {
    const what = scopes.includes("write") ? "sends clicks" : "reads";
    const name = label ?? "without a name";
    return el("li", { class: "row between", "data-key": id },
      el("span", {}, name, el("span", { class: "hint" }, ` · ${what} · made ${onDay(madeAt(id))}`,
        until ? ` · ends ${onDay(Date.parse(until))}` : "")),
      el("button", { type: "button", class: "danger", onclick: () => this.#revoke(id, name, scopes) },
        "Take back", el("span", { class: "hidden" }, ` ${name}`)));
  }

  async #add() {
    this.add.disabled = true;
    const key = await this.#try(() => newKey(this.api, this.book.id));
    this.add.disabled = false;
    if (!key) return;
    this.made.replaceChildren(snippets(this.book.slug, key));
    await this.list();
  }

  async #revoke(id, name, scopes) {
    const sure = await ask({
      title: `Take back “${name}”?`,
      body: scopes.includes("write")
        ? "Pages that still carry it are not counted any more."
        : "Whoever has the link sees nothing any more.",
      yes: "Take back",
    });
    if (!sure) return;
    await this.#try(() => this.api.call(`/v1/tokens/${id}`, { method: "DELETE" }));
    await this.list();
  }

  async #try(act) {
    this.said.replaceChildren();
    try {
      return (await act()) ?? true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.said.replaceChildren(alert(error.words));
      return null;
    }
  }
}

/** When something with an id of version 7 was made, in ms. */
const madeAt = (id) => parseInt(id.replaceAll("-", "").slice(0, 12), 16);
