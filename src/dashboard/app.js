// The way from an address to a view. Each view fills <main> and gives a function that ends it.

import { Api, Refused } from "./api.js";
import { alert, el } from "./dom.js";
import { bookView } from "./book.js";
import { booksView } from "./books.js";
import { loginView } from "./login.js";
import { newBookView } from "./new.js";

const main = document.getElementById("main");
const top = document.getElementById("top");

/** @type {(() => void)|undefined} ends the view that is shown */
let leave;

/** What every view gets. */
const app = {
  api: new Api(),
  /** Shows another address of the dashboard. */
  go(path, { replace = false } = {}) {
    history[replace ? "replaceState" : "pushState"](null, "", path);
    show();
  },
  /** Shows the login, and comes back here afterwards. */
  login() {
    render((root) => loginView(root, app, () => show()));
  },
  title(title) {
    document.title = title ? `${title} · Pagetide` : "Pagetide";
  },
};

function view() {
  const path = location.pathname.replace(/\/+$/, "") || "/";
  const [, place, name] = path.split("/");
  const slug = name && decodeURIComponent(name);
  if (place === "share") {
    const token = location.hash.slice(1);
    const visitor = { ...app, api: new Api({ token }) };
    return (root, left) => bookView(root, visitor, slug, { shared: true, left });
  }
  if (place === "books") return (root, left) => bookView(root, app, slug, { shared: false, left });
  if (place === "new") return (root, left) => newBookView(root, app, left);
  return (root) => booksView(root, app);
}

function heading(shared) {
  const brand = el("span", { class: "brand" },
    el("img", { src: "/assets/icon.svg", alt: "", width: 24, height: 24 }), "Pagetide");
  if (shared) return [brand];
  const link = el("a", { href: "/", class: "brand", "data-link": true }, ...brand.childNodes);
  const out = el("button", { type: "button", class: "quiet", id: "logout", onclick: logOut }, "Log out");
  return [link, out];
}

async function logOut() {
  try {
    await app.api.call("/v1/sessions/current", { method: "DELETE" });
  } catch (error) {
    // One that has ended already is as good.
    if (![401, 404].includes(error.status)) return void top.append(alert(`Not logged out: ${error.message}`));
  }
  app.go("/");
}

/** Ends what is shown and shows something else. */
async function render(draw) {
  leave?.();
  const left = new AbortController();
  leave = () => left.abort();
  const root = el("div", { class: "view" });
  main.replaceChildren(root);
  main.setAttribute("aria-busy", "true");
  try {
    const end = await draw(root, left.signal);
    // Something else may have been asked for meanwhile.
    if (left.signal.aborted) end?.();
    else leave = () => [() => left.abort(), end].forEach((leaving) => leaving?.());
  } catch (error) {
    if (left.signal.aborted) return;
    if (error instanceof Refused && error.status === 401 && !location.pathname.startsWith("/share")) {
      return app.login();
    }
    root.replaceChildren(failure(error));
  } finally {
    if (root.isConnected) main.setAttribute("aria-busy", "false");
  }
}

function failure(error) {
  if (!(error instanceof Refused)) console.error(error);
  const again = el("button", { type: "button", onclick: () => show() }, "Try again");
  const words = error.status === 404
    ? "There is no such book, or you may not see it."
    : error.status === 401
      ? "This link does not work any more: its token has expired or was taken back."
      : error.words ?? "Something in this page went wrong.";
  return el("section", { class: "card" }, alert(words), again);
}

function show() {
  top.replaceChildren(...heading(location.pathname.startsWith("/share")));
  app.title("");
  render(view());
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-link]") : null;
  if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  app.go(link.getAttribute("href"));
  main.focus({ preventScroll: true });
});
addEventListener("popstate", show);
// A link to another book's share page may be pasted into the same tab.
addEventListener("hashchange", () => location.pathname.startsWith("/share") && show());
show();
