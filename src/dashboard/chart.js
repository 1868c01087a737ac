// The chart: a bar for each window, provisional, counted, corrected or final, and notes on its axis.
//
// Bars are drawn in units of their values and of steps of time; one transform each scales and moves all
// of them, so that a change costs what it changes.

import { attr, el, svg, text } from "./dom.js";
import { atClock, atMinute, atMoment, compact, onDay, whole } from "./words.js";

/** What the states of bars are called. */
export const STATES = {
  open: ["provisional", "still being counted"],
  fired: ["counted", "counted to its end; late clicks may still correct it"],
  corrected: ["corrected", "changed by late clicks after it had been counted"],
  closed: ["final", "nothing changes it any more"],
};

const TICKS = 5;

/** A chart of bars over time. */
export class Chart {
  #bars = new Map();
  #max = 0;
  #origin = 0;
  #selected = null;
  #notes = "";

  constructor() {
    this.group = svg("g", { class: "scale" });
    this.moving = svg("g", {}, this.group);
    this.svg = svg("svg", { preserveAspectRatio: "none", "aria-hidden": "true" }, this.moving);
    this.top = el("span", { class: "top" });
    this.half = el("span", { class: "half" });
    this.markers = el("div", { class: "markers" });
    this.ticks = Array.from({ length: TICKS }, () => el("span", {}));
    this.readout = el("p", { class: "readout" });
    // Spoken when a bar is chosen, and not each time that it grows.
    this.spoken = el("p", { class: "hidden", role: "status" });
    this.plot = el("div", {
      id: "chart", class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart",
      "aria-label": "Bars by time. Left and right arrows read them one by one.",
    }, this.top, this.half, this.svg);
    const legend = Object.entries(STATES).map(([state, [word, meaning]]) =>
      el("li", { class: `key ${state}`, title: meaning }, word));
    this.root = el("figure", { class: "chart" }, this.plot, this.markers,
      el("div", { class: "axis", "aria-hidden": "true" }, ...this.ticks),
      this.readout, this.spoken, el("ul", { class: "legend" }, ...legend));
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerleave", () => this.#select(null));
    this.plot.addEventListener("blur", () => this.#select(null));
    this.plot.addEventListener("keydown", (event) => this.#walk(event));
  }

  /** Draws everything that a series has. */
  reset(series) {
    const selected = this.#selected;
    this.#select(null);
    this.group.replaceChildren();
    this.#bars.clear();
    this.#max = 0;
    this.#origin = series.from;
    for (const start of series.starts()) this.#set(start, series.bar(start), series.step);
    this.move(series);
    this.#rescale();
    if (this.#bars.has(selected)) this.#select(selected);
  }

  /** Draws the bars that have changed. */
  update(series, starts) {
    let rescale = false;
    for (const start of starts) rescale = this.#set(start, series.bar(start), series.step) || rescale;
    if (rescale) this.#rescale();
    if (starts.has(this.#selected)) this.#read();
  }

  /** Moves to the range of the series. */
  move(series) {
    const { from, to, step } = series;
    if (from === this.from && to === this.to && step === this.step) return;
    [this.from, this.to, this.step] = [from, to, step];
    attr(this.svg, "viewBox", `0 0 ${(to - from) / step} 100`);
    attr(this.moving, "transform", `translate(${(this.#origin - from) / step} 100)`);
    const length = to - from;
    const words = length > 3 * 86_400_000 ? onDay : step < 60_000 ? atClock : length > 86_400_000 ? atMoment : atMinute;
    this.ticks.forEach((tick, i) => text(tick, words(from + (length * i) / (TICKS - 1))));
    this.#placeMarkers();
  }

  /** Whether the scale must change. */
  #set(start, bar, step) {
    const known = this.#bars.get(start);
    if (!bar) {
      if (!known) return false;
      known.rect.remove();
      this.#bars.delete(start);
      return known.bar.value >= this.#max;
    }
    const rect = known?.rect ?? svg("rect", { y: 0, "data-start": bar.start });
    const was = known?.bar.value ?? 0;
    if (!known) {
      attr(rect, "x", (start - this.#origin) / step + 0.08);
      attr(rect, "width", Math.max(Math.min((bar.end - bar.start) / step, 1) - 0.16, 0.2));
      this.group.append(rect);
    }
    attr(rect, "height", Math.max(bar.value, 0));
    attr(rect, "data-value", bar.value);
    attr(rect, "data-state", bar.state);
    // Seen to move: a correction of the past is news.
    if (known && bar.state === "corrected" && was !== bar.value) flash(rect);
    this.#bars.set(start, { rect, bar });
    return bar.value > this.#max || (was >= this.#max && bar.value < was);
  }

  #rescale() {
    let max = 0;
    for (const { bar } of this.#bars.values()) max = Math.max(max, bar.value);
    this.#max = max;
    const top = nice(max);
    attr(this.group, "transform", `scale(1 ${-100 / top})`);
    text(this.top, compact(top));
    text(this.half, compact(top / 2));
  }

  /** @param {Array<object>} notes as the server gives them */
  notes(notes, choose) {
    const said = JSON.stringify(notes);
    if (said === this.#notes) return;
    this.#notes = said;
    this.markers.replaceChildren(...notes.map((note) => {
      const at = Date.parse(note.at);
      const marker = el("button", {
        type: "button", class: "marker", title: `${note.text} · ${atMoment(at)}`, onclick: () => choose(note.id),
      }, el("span", { class: "hidden" }, `Note: ${note.text}`));
      marker.at = at;
      return marker;
    }));
    this.#placeMarkers();
  }

  #placeMarkers() {
    for (const marker of this.markers.children) {
      const share = (marker.at - this.from) / (this.to - this.from);
      marker.hidden = !(share >= 0 && share <= 1);
      marker.style.left = `${share * 100}%`;
    }
  }

  #point(event) {
    const box = this.plot.getBoundingClientRect();
    const at = this.from + ((event.clientX - box.left) / box.width) * (this.to - this.from);
    let found = null;
    for (const [start, { bar }] of this.#bars) {
      if (start <= at && at < start + Math.max(this.step, bar.end - bar.start)) found = start;
    }
    this.#select(found);
  }

  #walk(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const to = { Home: 0, End: -1 }[event.key];
    if (by === undefined && to === undefined) return;
    event.preventDefault();
    const starts = [...this.#bars.keys()].sort((a, b) => a - b);
    const here = starts.indexOf(this.#selected);
    const next = to !== undefined ? starts.at(to)
      : here < 0 ? starts.at(-1) : starts[Math.min(Math.max(here + by, 0), starts.length - 1)];
    this.#select(next ?? null);
  }

  #select(start) {
    if (this.#selected === start) return;
    this.#bars.get(this.#selected)?.rect.classList.remove("selected");
    this.#selected = start;
    this.#bars.get(start)?.rect.classList.add("selected");
    this.#read();
    if (document.activeElement === this.plot) text(this.spoken, this.readout.textContent);
  }

  #read() {
    const bar = this.#bars.get(this.#selected)?.bar;
    if (!bar) return text(this.readout, "");
    const long = bar.end - bar.start >= 86_400_000;
    const when = long ? onDay(bar.start) : `${atMoment(bar.start)} – ${atClock(bar.end)}`;
    text(this.readout, `${when}: ${whole(bar.value)}, ${STATES[bar.state][0]}`);
  }
}

function flash(rect) {
  rect.classList.remove("moved");
  // Begins the animation anew.
  void rect.getBoundingClientRect();
  rect.classList.add("moved");
}

/** The least of 1, 2, 4, 6, 8, 10, 20 … that is at least `max`. */
function nice(max) {
  if (max <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 2, 4, 6, 8, 10].map((n) => n * power).find((n) => n >= max) ?? max;
}
