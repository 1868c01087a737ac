// The wait for a book's first click.

import { Book } from "/client.js";
import { el, text } from "./dom.js";

/**
 * Follows a book until its first click has been counted.
 * @param {{slug: string}} of
 * @returns {{root: HTMLElement, close: () => void}}
 */
export function firstClick({ slug }) {
  const book = new Book({ book: slug, url: location.origin });
  const heading = el("h2", {}, "Waiting for the first click");
  const words = el("p", {}, "Paste the line, publish, and open a page of the book. This turns to live by itself.");
  const link = el("a", { class: "button", href: `/books/${slug}`, "data-link": true }, "Open the book’s page");
  // All of it is spoken when it changes.
  const said = el("div", { role: "status" }, heading, words);
  const root = el("section", { class: "card first-click", id: "first-click", "data-state": "waiting" }, said, el("p", {}, link));
  const look = () => {
    const { on_time: onTime, late, received } = book.state?.totals ?? {};
    const { state } = book.connection;
    if (onTime + late > 0) {
      root.dataset.state = "live";
      text(heading, "Live: the first click is here");
      text(words, "It was counted, and so are all that follow.");
      book.close();
    } else if (received > 0) {
      text(words, "A click came, but was left out: bots, networks that are ignored, and clicks with a wrong time are not counted. The book’s page says which.");
    } else if (state === "denied") {
      text(words, "Your login has ended. The line to paste goes on all the same; log in again to see the book’s page.");
    }
  };
  book.addEventListener("change", look);
  book.addEventListener("connection", look);
  book.start();
  return { root, close: () => book.close() };
}
