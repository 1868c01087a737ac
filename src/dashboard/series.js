// What a chart and its tables show: bars by time, and totals by group, of one rollup in one range.
//
// Two kinds. `LiveSeries` is the newest windows, out of what the client knows, moved on by each frame.
// `PastSeries` is a range of the past, added up by the server, and asked for again when a frame says
// that something in it has changed. A frame costs both of them what it says, however long the range.

/**
 * @typedef {object} Bar
 * @property {number} start
 * @property {number} end
 * @property {number} value
 * @property {"open"|"fired"|"corrected"|"closed"} state
 */

/** So many of the newest windows are the live range. */
export const LIVE_WINDOWS = 60;

export const HOUR = 3_600_000;
export const DAY = 24 * HOUR;

export const additive = (spec) => spec.aggregate === "count" || spec.aggregate === "sum";

/** A value as one number; of `top`, all that it lists. */
export function amount(value) {
  if (!Array.isArray(value)) return value ?? 0;
  return value.reduce((sum, { count }) => sum + count, 0);
}

/** How far apart the bars of a rollup are. */
export function step(spec) {
  const { kind, size_ms, slide_ms, gap_ms } = spec.window;
  if (kind === "tumbling") return size_ms;
  if (kind === "sliding") return slide_ms;
  // Sessions begin at any moment: those that begin near each other share a bar.
  return [60_000, 300_000, 900_000, HOUR, 6 * HOUR, DAY].find((ms) => ms >= gap_ms) ?? 7 * DAY;
}

/** Whether totals by group can be added up over the windows of a rollup. */
export const addsUp = (spec) => additive(spec) && spec.window.kind !== "sliding";
