// One book's page.

/**
 * @param {HTMLElement} root
 * @param {object} app
 * @param {string} slug
 */
export function bookView(root, app, slug) {
  root.append(slug);
}
