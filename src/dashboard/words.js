// Numbers and times as people read them, in the viewer's own language and zone.

const number = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const fraction = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

/** The viewer's zone, as the calendar of the server knows it. */
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const moment = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  timeZoneName: "short",
});

/** 12,345; values of sums may have fractions. */
export const whole = (value) => (Number.isInteger(value) ? number : fraction).format(value);

/** 12K */
export const compact = (value) => short.format(value);

/** "3 clicks" */
export const count = (value, word) => `${whole(value)} ${word}${value === 1 ? "" : "s"}`;

/** 14:03:07 */
export const atClock = (ms) => clock.format(ms);

/** 14:03 */
export const atMinute = (ms) => minutes.format(ms);

/** 3 Mar 2026 */
export const onDay = (ms) => day.format(ms);

/** The whole of a moment, with the zone named. */
export const atMoment = (ms) => moment.format(ms);

/** "5 s", "3 min", "2 h", "4 d" */
export function span(ms) {
  const sign = ms < 0 ? "−" : "";
  const s = Math.abs(ms) / 1000;
  if (s < 10) return `${sign}${s.toFixed(1)} s`;
  if (s < 120) return `${sign}${Math.round(s)} s`;
  if (s < 7200) return `${sign}${Math.round(s / 60)} min`;
  if (s < 172_800) return `${sign}${Math.round(s / 3600)} h`;
  return `${sign}${whole(Math.round(s / 86_400))} d`;
}

/** "3 min ago" */
export function ago(ms, now = Date.now()) {
  const s = (ms - now) / 1000;
  if (Math.abs(s) < 90) return relative.format(Math.round(s), "second");
  if (Math.abs(s) < 5400) return relative.format(Math.round(s / 60), "minute");
  if (Math.abs(s) < 129_600) return relative.format(Math.round(s / 3600), "hour");
  if (Math.abs(s) < 60 * 86_400) return relative.format(Math.round(s / 86_400), "day");
  return onDay(ms);
}
