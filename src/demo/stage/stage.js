// The stage: buttons, the story, and the end. What it shows comes from /show; what the dashboard has
// drawn, the dashboard says itself.

const find = (id) => document.getElementById(id);
const bookFrame = find("book-frame");
const dashboardFrame = find("dashboard-frame");
const dashboardOrigin = new URL(dashboardFrame.src).origin;

/** The state of the show, as /show said it last. */
let show = null;
/** What the dashboard has drawn last. */
let seen = null;
/** Whether the book's pages are being brought to rest for the end. */
let settling = false;

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const number = new Intl.NumberFormat();

/** Sets a text, if it is another: what is unchanged is not read out again. */
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function putNumber(element, value) {
  element.dataset.value = value;
  put(element, number.format(value));
}

function drawControls() {
  const over = show.finishing;
  const lid = show.lid_opens_at;
  find("plug").disabled = over || !show.running;
  find("lid").disabled = over || lid !== null;
  find("tunnel").disabled = over || show.in_tunnel !== null;
  find("finish").disabled = over;
  bookFrame.inert = over;
  const server = find("server");
  server.dataset.state = show.running ? "running" : "off";
  put(server, show.running ? "runs" : "is off");
  drawLid();
  if (show.in_tunnel !== null) {
    put(find("tunnel-note"), `In the tunnel. The phones keep ${number.format(show.in_tunnel)} clicks.`);
  } else {
    put(find("tunnel-note"), find("tunnel-note").dataset.plain);
  }
  putNumber(find("acknowledged"), show.acknowledged);
  putNumber(find("waiting"), show.waiting);
}

function drawLid() {
  const note = find("lid-note");
  if (show?.lid_opens_at == null) {
    put(note, note.dataset.plain);
    return;
  }
  const seconds = Math.max(0, Math.ceil((show.lid_opens_at - Date.now()) / 1000));
  put(note, `Closed: this browser hears nothing for another ${seconds} s.`);
}

/** Adds what the story has more than before. */
function drawStory() {
  const lines = find("lines");
  const known = Number(lines.dataset.known ?? 0);
  if (show.lines === known) return;
  const fresh = show.story.slice(-(show.lines - known));
  for (const { at, text } of fresh) {
    const item = document.createElement("li");
    const time = document.createElement("time");
    time.dateTime = new Date(at).toISOString();
    time.textContent = clock.format(at);
    item.append(time, " ", text);
    lines.append(item);
  }
  while (lines.children.length > show.story.length) lines.firstChild.remove();
  lines.dataset.known = show.lines;
  lines.scrollTop = lines.scrollHeight;
}

/** What the dashboard shows as counted, once it has drawn the last frame of the book. */
function onTheScreen(end) {
  if (!seen || seen.position < end.position) return null;
  const { on_time, late, dropped } = seen.totals;
  return on_time + late + dropped;
}

function drawEnd() {
  const end = show.end;
  find("end").hidden = !end;
  if (!end) return;
  const screen = onTheScreen(end);
  const values = { acknowledged: end.acknowledged, sql: end.clicks, screen };
  for (const [name, value] of Object.entries(values)) {
    const element = document.querySelector(`[data-number="${name}"]`);
    if (value === null) put(element, "…");
    else putNumber(element, value);
  }
  if (screen === null) {
    put(find("verdict-note"), "The dashboard has yet to draw the last frame.");
    return;
  }
  const all = end.windows + end.dropped;
  const equal = end.acknowledged === end.clicks && end.clicks === all && all === screen;
  for (const sign of document.querySelectorAll("#verdict i")) put(sign, equal ? "=" : "≟");
  find("verdict").dataset.equal = equal;
  const notes = [];
  notes.push(equal ? "All three agree." : `They do not agree: the windows add up to ${number.format(end.windows)}.`);
  if (end.dropped > 0) notes.push(`${number.format(end.dropped)} came more than ten minutes late and are in no window.`);
  if (end.duplicates > 0) notes.push(`Sent twice and counted once: ${number.format(end.duplicates)}.`);
  put(find("verdict-note"), notes.join(" "));
}

function draw() {
  drawControls();
  drawStory();
  drawEnd();
}

/** How many clicks of the book's pages, which have this tab's storage, are not acknowledged yet. */
function beaconOwes() {
  const underWay = bookFrame.contentWindow?.clicksUnderWay?.() ?? 0;
  const kept = Object.keys(sessionStorage).filter((name) => name.includes(" pagetide "));
  return underWay + kept.length;
}

/** Has the book's pages send what they have still to send, and says so once they have. */
async function settle() {
  settling = true;
  while (beaconOwes() > 0) {
    // The beacon waits longer and longer between its tries, but for this.
    bookFrame.contentWindow?.dispatchEvent(new Event("online"));
    await new Promise((done) => setTimeout(done, 500));
  }
  await ask("settle");
}

async function ask(deed) {
  await fetch(`/deeds/${deed}`, { method: "POST" });
}

for (const id of ["lid-note", "tunnel-note"]) find(id).dataset.plain = find(id).textContent;
for (const deed of ["plug", "lid", "tunnel", "finish"]) {
  find(deed).addEventListener("click", () => ask(deed));
}
window.addEventListener("message", ({ origin, source, data }) => {
  if (origin !== dashboardOrigin || source !== dashboardFrame.contentWindow || !data?.pagetide) return;
  seen = data.pagetide;
  if (show?.end) drawEnd();
});

setInterval(drawLid, 1000);
new EventSource("/show").addEventListener("message", ({ data }) => {
  show = JSON.parse(data);
  draw();
  if (show.finishing && !show.end && !settling) settle();
});
