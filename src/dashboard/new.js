// Making a book.

/**
 * @param {HTMLElement} root
 * @param {object} app
 */
export function newBookView(root, app) {
  app.title("Add a book");
  root.append("…");
}

/** The snippet to paste, and the keys that it may carry. */
export async function snippetPanel() {
  return document.createElement("div");
}
