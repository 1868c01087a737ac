// A field of a form: its name, what may stand in it, and what is wrong with what does.

import { attr, el } from "./dom.js";

/** A labelled control. What is wrong with it is said beside it, to screen readers too. */
export class Field {
  /**
   * @param {object} of
   * @param {string} of.id
   * @param {string} of.label
   * @param {HTMLInputElement|HTMLTextAreaElement} of.input its id is set here
   * @param {...(Node|string)} hint
   */
  constructor({ id, label, input }, ...hint) {
    this.input = input;
    input.id = id;
    this.hint = el("p", { class: "hint", id: `${id}-hint` }, ...hint);
    this.wrong = el("p", { class: "wrong", id: `${id}-wrong`, hidden: true });
    attr(input, "aria-describedby", `${id}-hint ${id}-wrong`);
    this.root = el("div", { class: "field" }, el("label", { for: id }, label), input, this.hint, this.wrong);
    input.addEventListener("input", () => this.fail());
  }

  get value() {
    return this.input.value.trim();
  }

  /** Says what is wrong; with nothing, that all is well. */
  fail(...words) {
    this.wrong.replaceChildren(...words);
    this.wrong.hidden = words.length === 0;
    attr(this.input, "aria-invalid", words.length > 0 ? "true" : null);
  }

  get failed() {
    return !this.wrong.hidden;
  }

  /** It can no longer be changed. */
  settle() {
    this.input.readOnly = true;
  }
}
