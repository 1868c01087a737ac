// Making a book: what it is called, where it stands, its chapters; then the line to paste, and the wait
// for the first click.

import { Refused } from "./api.js";
import { ChaptersField } from "./chapters-field.js";
import { alert, el, text } from "./dom.js";
import { Field } from "./field.js";
import { firstClick } from "./first-click.js";
import { newKey, snippets } from "./snippet.js";
import { siteOf, slugOf } from "./structure.js";

export { snippetPanel } from "./snippet.js";

/**
 * @param {HTMLElement} root
 * @param {object} app
 * @param {AbortSignal} left told when the view is left
 * @returns {Promise<() => void>}
 */
export async function newBookView(root, app, left) {
  app.title("Add a book");
  const caller = await app.api.call("/v1/sessions/current");
  if (!caller.admin) {
    root.append(el("section", { class: "card empty", id: "no-permission" },
      el("h1", {}, "Add a book"),
      el("p", {}, "Your token may not add books. Ask whoever runs this server for one that may, or to add the book."),
      el("a", { class: "button", href: "/", "data-link": true }, "Back to the books")));
    return () => {};
  }
  let end;
  const form = new Form(app, (made) => {
    if (left.aborted) return;
    app.title(made.book.title);
    end = pasteView(root, app, made);
  });
  root.append(form.root);
  form.title.input.focus();
  return () => end?.();
}

class Form {
  /** What is done already: the book, whether it has its chapters, its key. */
  #made = { book: null, chapters: false, key: null };

  constructor(app, done) {
    Object.assign(this, { app, done });
    const line = (more) => el("input", { type: "text", autocomplete: "off", ...more });
    this.title = new Field({ id: "title", label: "Title", input: line({ required: true }) }, "As readers know it.");
    this.slug = new Field({ id: "slug", label: "Short name", input: line({ required: true, spellcheck: "false", autocapitalize: "none" }) },
      "In addresses: small letters, digits and hyphens. It stays as it is.");
    this.site = new Field({ id: "site", label: "Address of the book (optional)", input: line({ inputmode: "url", spellcheck: "false", placeholder: "https://book.example.org" }) },
      "Only pages of this site can then send clicks with the book’s key. Without it, any page that has the key can.");
    this.base = new Field({ id: "base", label: "Base path (optional)", input: line({ spellcheck: "false", placeholder: "/book" }) },
      "The folder that all pages stand in, if there is one: it is cut off, so that ", el("code", {}, "/book/ch01"), " is ", el("code", {}, "/ch01"), ".");
    this.chapters = new ChaptersField((reading) => this.#taken(reading));
    this.said = el("div", {});
    this.button = el("button", { type: "submit", id: "make" }, "Add the book");
    this.root = el("form", { class: "card new-book", novalidate: true, "aria-labelledby": "new-title", onsubmit: (event) => this.#submit(event) },
      el("h1", { id: "new-title" }, "Add a book"),
      this.title.root, this.slug.root, this.site.root, this.base.root, this.chapters.root, this.said,
      el("div", { class: "row end" }, el("a", { href: "/", "data-link": true }, "Cancel"), this.button));
    this.#propose();
  }

  get #fields() {
    return [this.title, this.slug, this.site, this.base, this.chapters.field];
  }

  /** What follows from other fields, until it is typed otherwise. */
  #propose() {
    const own = new Set();
    for (const field of [this.slug, this.base]) field.input.addEventListener("input", () => own.add(field));
    const set = (field, value) => {
      if (own.has(field) || field.input.readOnly) return;
      field.input.value = value;
      field.fail();
    };
    this.title.input.addEventListener("input", () => set(this.slug, slugOf(this.title.value)));
    this.site.input.addEventListener("input", () => set(this.base, siteOf(this.site.value)?.base ?? ""));
  }

  /** A sitemap knows where its pages stand, and a summary may begin with the title. */
  #taken({ title, origin, base }) {
    const propose = (field, value) => {
      if (!value || field.value !== "" || field.input.readOnly) return;
      field.input.value = value;
      field.input.dispatchEvent(new Event("input", { bubbles: true }));
    };
    propose(this.title, title);
    propose(this.site, origin && origin + (base ?? ""));
  }

  async #submit(event) {
    event.preventDefault();
    this.said.replaceChildren();
    for (const field of this.#fields) field.fail();
    const chapters = this.chapters.value;
    const body = this.#body();
    if (!body || !chapters) return this.#toWrong();
    this.button.disabled = true;
    try {
      await this.#save(body, chapters);
      this.done(this.#made);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#refused(error);
    } finally {
      this.button.disabled = false;
    }
  }

  #body() {
    if (this.title.value === "") this.title.fail("It needs a title.");
    if (this.slug.value === "") this.slug.fail("It needs a short name.");
    const site = this.site.value === "" ? null : siteOf(this.site.value);
    if (this.site.value !== "" && !site) this.site.fail("This is no address of a site, such as https://book.example.org.");
    if ([this.title, this.slug, this.site].some((field) => field.failed)) return null;
    return {
      title: this.title.value, slug: this.slug.value, origins: site ? [site.origin] : [],
      settings: { base_path: this.base.value },
    };
  }

  /** Does what is not done yet. */
  async #save(body, chapters) {
    const { api } = this.app;
    if (!this.#made.book) {
      this.#made.book = await api.call("/v1/books", { method: "POST", body });
      for (const field of [this.title, this.slug, this.site, this.base]) field.settle();
    }
    const { id } = this.#made.book;
    if (!this.#made.chapters) {
      if (chapters.length > 0) await api.call(`/v1/books/${id}/chapters`, { method: "PUT", body: chapters });
      this.#made.chapters = true;
      this.chapters.field.settle();
    }
    this.#made.key ??= await newKey(api, id);
  }

  /** Each error beside the field that it is about; what is about none, below. */
  #refused(error) {
    const { book, chapters } = this.#made;
    const others = [];
    if (error.code === "slug_taken") {
      this.slug.fail("Another book has this short name: ",
        el("a", { href: `/books/${this.slug.value}`, target: "_blank", rel: "noopener" }, "look at it"), ".");
    } else if (book && !chapters && error.errors.length > 0) {
      this.chapters.refused(error.errors);
    } else if (!book) {
      const fields = { title: this.title, slug: this.slug, origins: this.site, "settings.base_path": this.base };
      for (const { field, detail } of error.errors) {
        if (fields[field]) fields[field].fail(`It has to be: ${detail}.`);
        else others.push([field, detail].filter(Boolean).join(": "));
      }
    }
    if (error.errors.length === 0 && error.code !== "slug_taken") others.push(error.message);
    if (error.status === 401) {
      others.push(el("span", {}, "Your login has ended. ",
        el("a", { href: "/", target: "_blank", rel: "noopener" }, "Log in in another tab"), ", then try again here."));
    }
    const done = book && (chapters ? "The book and its chapters are saved; its key is not made yet." : "The book is made; its chapters are not saved yet.");
    if (done) text(this.button, "Try the rest again");
    this.said.replaceChildren(...[done && el("p", { class: "notice", id: "made" }, done),
      ...others.map((words) => alert(words))].filter(Boolean));
    this.#toWrong();
  }

  #toWrong() {
    (this.#fields.find((field) => field.failed)?.input ?? this.button).focus();
  }
}

/** The line to paste, and whether it works already. Gives what ends the wait. */
function pasteView(root, app, { book, key }) {
  const heading = el("h1", { tabindex: "-1" }, book.title);
  const waiting = firstClick(book);
  root.replaceChildren(el("article", { class: "paste" },
    heading,
    el("section", { class: "card", "aria-labelledby": "paste-title" },
      el("h2", { id: "paste-title" }, "Paste this into its pages"),
      snippets(book.slug, key),
      el("p", { class: "hint" }, "The key is shown this once; another is made on the book’s page, under “Snippet and keys”.")),
    waiting.root));
  heading.focus();
  return () => waiting.close();
}
