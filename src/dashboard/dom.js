// Small words for the document: elements, and changes that touch only what has changed.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/**
 * An element of HTML.
 * @param {string} tag
 * @param {Object<string, any>} [attributes] `onclick` and the like are listeners; null, undefined and
 *   false are left out
 * @param {...(Node|string|null|Array)} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets the text of a node, if it is another. */
export function text(node, value) {
  const shown = String(value);
  if (node.textContent !== shown) node.textContent = shown;
}

/** Sets an attribute, if it is another; null removes it. */
export function attr(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** A message that a screen reader speaks at once, for things that went wrong. */
export function alert(message) {
  return el("p", { class: "notice error", role: "alert" }, message);
}

/**
 * Asks in a dialog of the page; gives whether the answer was yes.
 * @param {{title: string, body: string, yes: string}} question
 * @returns {Promise<boolean>}
 */
export function ask({ title, body, yes }) {
  return new Promise((done) => {
    const dialog = el("dialog", { "aria-labelledby": "ask-title" },
      el("form", { method: "dialog" },
        el("h2", { id: "ask-title" }, title),
        el("p", {}, body),
        el("div", { class: "row end" },
          el("button", { value: "no", class: "quiet", autofocus: true }, "Cancel"),
          el("button", { value: "yes", class: "danger" }, yes))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
