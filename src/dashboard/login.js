// Login: a token is exchanged for a session, which the browser keeps as a cookie no script can read.

import { openSession } from "./api.js";
import { alert, el } from "./dom.js";

/**
 * @param {HTMLElement} root
 * @param {object} app
 * @param {() => void} done called once the session is open
 */
export function loginView(root, app, done) {
  app.title("Log in");
  const field = el("input", {
    id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false",
  });
  const said = el("div", {});
  const button = el("button", { type: "submit" }, "Log in");
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    said.replaceChildren();
    try {
      await openSession(field.value.trim(), true);
      done();
    } catch (error) {
      const words = error.status === 401 ? "This token is not known here." : error.words;
      said.replaceChildren(alert(words));
      field.focus();
    } finally {
      button.disabled = false;
    }
  };
  root.append(el("form", { class: "card narrow", onsubmit: submit },
    el("h1", {}, "Log in"),
    el("label", { for: "token" }, "Token"),
    field,
    el("p", { class: "hint" }, "The server prints its admin token at its first start; ",
      el("code", {}, "pagetide token create --admin"), " makes another."),
    said,
    el("div", { class: "row end" }, button)));
  field.focus();
}
