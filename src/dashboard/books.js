// The list of books.

import { el } from "./dom.js";
import { count, ago } from "./words.js";

/**
 * @param {HTMLElement} root
 * @param {object} app
 */
export async function booksView(root, app) {
  const books = await app.api.all("/v1/books");
  app.title("Books");
  const add = el("a", { class: "button", href: "/new", "data-link": true }, "Add a book");
  root.append(el("div", { class: "row between" }, el("h1", {}, "Books"), add));
  if (books.length === 0) {
    root.append(el("section", { class: "card empty" },
      el("p", {}, "No books yet. Add the first one, and paste one line into its pages.")));
    return;
  }
  const rows = books.map((book) => el("li", {},
    el("a", { href: `/books/${book.slug}`, "data-link": true, "data-book": book.slug },
      el("strong", {}, book.title),
      el("span", { class: "hint" },
        book.status === "closed" ? "finished" : "live",
        " · ", count(book.totals.on_time + book.totals.late, "click"), " counted",
        book.watermark ? ` · counted up to ${ago(Date.parse(book.watermark))}` : " · nothing yet"))));
  root.append(el("ul", { class: "books" }, ...rows));
}
