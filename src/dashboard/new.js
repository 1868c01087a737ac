// Making a book.

/**
 * @param {HTMLElement} root
 * @param {object} app
 */
export function newBookView(root, app) {
  app.title("Add a book");
  root.append("…");
}
