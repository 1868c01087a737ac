// Chapters as people have them: lines of text, the SUMMARY.md of an mdBook, a sitemap. Nothing here
// knows of a document or of the server.
//
// A page is a path as it stands in an address; the server gives it the name that clicks have.

/**
 * A chapter as it was read.
 * @typedef {object} Chapter
 * @property {string} title
 * @property {string[]} pages paths; one that ends in `/*` takes all below it
 * @property {string} [part] the heading that it is the first below
 * @property {number} [line] the line that it was typed on, from 1
 */

/**
 * What was read.
 * @typedef {object} Reading
 * @property {"lines"|"summary"|"sitemap"} kind
 * @property {Chapter[]} chapters
 * @property {{line?: number, words: string}[]} problems what could not be read
 * @property {string[]} notes what was left out, and why
 * @property {string} [title] of the book
 * @property {string} [origin] where its pages stand
 * @property {string} [base] the folder that all of them stand in, without a slash at the end
 */

/** Most characters of a title. */
const MAX_TITLE = 200;

/**
 * Reads chapters in whichever form they are.
 * @param {string} text
 * @param {"folder"|"page"} [each] what becomes a chapter of a sitemap
 * @returns {Reading}
 */
export function read(text, each = "folder") {
  if (/^\s*</.test(text) && /<(?:[\w.-]+:)?(?:urlset|sitemapindex|loc)[\s>]/.test(text)) {
    return fromSitemap(text, each);
  }
  // A list of links, and no page of an address on its line.
  if (/^[ \t]*(?:[-*+][ \t]+|\d+[.)][ \t]+)?\[.*\]\([^)]*\)[^/\n]*$/m.test(text)) return fromSummary(text);
  return fromLines(text);
}

/** A short name for addresses, made of a title; "" if nothing of it can stand in one. */
export function slugOf(title) {
  const plain = title.normalize("NFKD").replace(/\p{M}/gu, "").replaceAll("ß", "ss").toLowerCase();
  return plain.replace(/[^a-z0-9]+/g, "-").slice(0, 64).replace(/^-+|-+$/g, "");
}

/**
 * The chapters as the server takes them: with ids made of their titles.
 * @param {Chapter[]} chapters
 * @returns {{id: string, title: string, pages: string[]}[]}
 */
export function withIds(chapters) {
  const taken = new Set();
  return chapters.map(({ title, pages }, place) => {
    const slug = slugOf(title) || `chapter-${place + 1}`;
    let id = slug;
    for (let n = 2; taken.has(id); n += 1) id = `${slug}-${n}`;
    taken.add(id);
    return { id, title, pages };
  });
}

/**
 * Reads lines as people type them: `Title: /page, /folder/*`, or a page alone. A line that begins
 * with `#` is a heading.
 * @param {string} text
 * @returns {Reading}
 */
export function fromLines(text) {
  const chapters = [];
  const problems = [];
  let part;
  for (const [place, whole] of text.split(/\r\n?|\n/).entries()) {
    const line = place + 1;
    const trimmed = whole.trim();
    if (trimmed === "") continue;
    if (trimmed.startsWith("#")) {
      part = trimmed.replace(/^#+\s*/, "");
      continue;
    }
    const { title, pages } = typed(trimmed.replace(/^[-*+]\s+/, "").replace(GUARD, ""));
    const wrong = pages.find((page) => !isPage(page));
    if (wrong !== undefined) {
      problems.push({ line, words: `“${shortened(wrong)}” is no page: a page begins with a slash.` });
    } else if (pages.length === 0) {
      problems.push({ line, words: `“${shortened(title)}” has no page. Write “Title: /page”.` });
    } else {
      chapters.push({ title: title || titleOf(pages[0]), pages, line, ...(part && { part }) });
      part = undefined;
    }
  }
  return { kind: "lines", chapters, problems, notes: [] };
}

/** What tells a title from a heading or an item of a list, where it begins as those do. */
const GUARD = /^\\(?=[-#*+\\])/;

const PAGE = String.raw`(?:\/|https?:\/\/)`;
/** The last colon with a page behind it; that of an address is none. */
const TITLED = new RegExp(String.raw`^(.*)\s*:(?:\s+(?=${PAGE})|(?=\/(?!\/)))(.*)$`);
const BETWEEN = new RegExp(String.raw`,\s*(?=${PAGE})|,\s+|\s+(?=${PAGE})|,$`);

const isPage = (text) => new RegExp(`^${PAGE}`).test(text);

function typed(line) {
  // A title may look like a page, too.
  const found = TITLED.exec(line) ?? (isPage(line) ? [line, "", line] : null);
  if (!found) return { title: line.replace(/\s*:$/, ""), pages: [] };
  const pages = found[2].split(BETWEEN).map((page) => page.trim()).filter(Boolean);
  return { title: clipped(found[1].trim()), pages: [...new Set(pages)] };
}

/** The inverse of {@link fromLines}. */
export function toLines(chapters) {
  const lines = [];
  for (const { title, pages, part } of chapters) {
    if (part) lines.push(...(lines.length > 0 ? [""] : []), `# ${part}`);
    lines.push(`${/^[-#*+\\]/.test(title) ? "\\" : ""}${title}: ${pages.join(", ")}`);
  }
  return lines.join("\n");
}

/**
 * Reads the `SUMMARY.md` of an mdBook. Each entry that stands in no other is a chapter, with the pages
 * of those below it. `.md` goes from pages, and `README.md` is the page of its folder, as mdBook does
 * it; the first page is that of the book too.
 * @param {string} text
 * @returns {Reading}
 */
export function fromSummary(text) {
  const chapters = [];
  const seen = new Set();
  const left = { drafts: 0, twice: 0, elsewhere: 0 };
  let title;
  let part;
  /** What encloses the next entry. @type {{indent: number, chapter: Chapter}[]} */
  let around = [];
  for (const line of text.replace(/<!--[\s\S]*?-->/g, "").split(/\r\n?|\n/)) {
    const heading = /^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$/.exec(line);
    if (heading) {
      if (title === undefined && chapters.length === 0 && !part) title = plain(heading[1]);
      else part = plain(heading[1]);
      around = [];
      continue;
    }
    const [, blank, bullet, rest] = /^([ \t]*)([-*+]\s+|\d+[.)]\s+)?(.*)$/.exec(line);
    const link = linkAt(rest);
    if (!link) continue;
    const indent = bullet ? blank.replaceAll("\t", "    ").length : -1;
    around = around.filter((outer) => outer.indent < indent);
    let chapter = around[0]?.chapter;
    if (!chapter) {
      chapter = { title: clipped(plain(link.title)) || "Untitled", pages: [] };
      if (part) chapter.part = part;
      part = undefined;
      chapters.push(chapter);
    }
    if (bullet) around.push({ indent, chapter });
    const page = pageOf(link.to);
    if (page === null) left.drafts += 1;
    else if (page === undefined) left.elsewhere += 1;
    else if (seen.has(page)) left.twice += 1;
    else {
      seen.add(page);
      chapter.pages.push(page);
    }
  }
  const first = chapters.find((chapter) => chapter.pages.length > 0);
  if (first && !seen.has("/")) first.pages.unshift("/");
  return {
    kind: "summary",
    chapters: withPages(chapters),
    problems: [],
    notes: [
      left.drafts > 0 && `${entries(left.drafts)} without a page, drafts, left out`,
      left.twice > 0 && `${entries(left.twice)} whose page stands further up already, left out`,
      left.elsewhere > 0 && `${entries(left.elsewhere)} of another site, left out`,
    ].filter(Boolean),
    ...(title && title.toLowerCase() !== "summary" && { title }),
  };
}

const entries = (n) => (n === 1 ? "1 entry" : `${n} entries`);

/** Without those that have no page; a heading goes to the next one that has. */
function withPages(chapters) {
  let part;
  const kept = [];
  for (const chapter of chapters) {
    part = chapter.part ?? part;
    if (chapter.pages.length === 0) continue;
    kept.push({ title: chapter.title, pages: chapter.pages, ...(part && { part }) });
    part = undefined;
  }
  return kept;
}

/** The link that a text begins with: `[title](to "more")`, with brackets in the title. */
function linkAt(text) {
  if (!text.startsWith("[")) return null;
  let depth = 0;
  for (let i = 0; i < text.length; i += 1) {
    if (text[i] === "\\") i += 1;
    else if (text[i] === "[") depth += 1;
    else if (text[i] === "]" && (depth -= 1) === 0) {
      const to = /^\(\s*(?:<([^>]*)>|([^\s)]*(?:\([^\s)]*\)[^\s)]*)*))(?:\s+["'(].*?["')])?\s*\)/.exec(text.slice(i + 1));
      return to && { title: text.slice(1, i), to: to[1] ?? to[2] };
    }
  }
  return null;
}

/** The page of a file of the book; null: none yet; undefined: it stands elsewhere. */
function pageOf(to) {
  const file = to.replace(/[?#].*$/, "");
  if (file === "") return null;
  if (/^(?:[a-z][a-z0-9+.-]*:|\/\/)/i.test(file)) return undefined;
  // Dots in paths are resolved as browsers do.
  const path = new URL(file, "http://book/").pathname;
  const page = path.replace(/(^|\/)(?:readme|index)\.(?:md|markdown)$/i, "$1").replace(/\.(?:md|markdown)$/i, "");
  return page.replace(/\/+$/, "") || "/";
}

/** Text without its marks. */
function plain(markdown) {
  return markdown
    .replace(/(`+) ?(.+?) ?\1/g, "$2")
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/(\*\*|__|\*|(?<!\w)_)(?=\S)(.+?)(?<=\S)\1/g, "$2")
    .replace(/<\/?[a-z][^>]*>/gi, (tag, at, all) => (all.includes(`</${tag.slice(1)}`) || tag.startsWith("</") ? "" : tag))
    .replace(/\\([\\`*_{}[\]()#+.!<>|~-])/g, "$1")
    .replace(ENTITY, entity)
    .trim();
}

/**
 * Reads a sitemap.
 * @param {string} xml
 * @param {"folder"|"page"} each what becomes a chapter: a folder with all that is in it, or each page
 * @returns {Reading}
 */
export function fromSitemap(xml, each) {
  const text = xml.replace(/<!--[\s\S]*?-->/g, "");
  const nothing = (words) => ({ kind: "sitemap", chapters: [], problems: [{ words }], notes: [] });
  if (/<(?:[\w.-]+:)?sitemapindex[\s>]/.test(text)) {
    const others = locations(text, "sitemap").slice(0, 5).join(" ");
    return nothing(`This sitemap only names others. Take one of them: ${others}`);
  }
  const urls = locations(text, "url").map(parsed).filter(Boolean);
  if (urls.length === 0) return nothing("There is no page in this sitemap.");
  const origin = commonest(urls.map((url) => url.origin));
  const paths = [...new Set(urls.filter((url) => url.origin === origin).map((url) => url.pathname))];
  const others = urls.filter((url) => url.origin !== origin).length;
  const base = commonFolder(paths);
  return {
    kind: "sitemap",
    chapters: each === "page" ? paths.map((path) => ({ title: titleOf(path, base), pages: [path] })) : byFolder(paths, base),
    problems: [],
    notes: others > 0 ? [`${others === 1 ? "1 page" : `${others} pages`} of other sites, left out`] : [],
    origin,
    base,
  };
}

/** The `loc` of each element `name`. */
function locations(xml, name) {
  const element = new RegExp(String.raw`<([\w.-]+:)?${name}\s*>([\s\S]*?)</\1?${name}\s*>`, "g");
  return [...xml.matchAll(element)].flatMap(([, space = "", inside]) => {
    const loc = new RegExp(String.raw`<${space}loc\s*>\s*(?:<!\[CDATA\[([\s\S]*?)\]\]>|([^<]*))\s*</${space}loc\s*>`);
    const found = loc.exec(inside);
    if (!found) return [];
    return [(found[1] ?? found[2].replace(ENTITY, entity)).trim()];
  });
}

function parsed(address) {
  try {
    const url = new URL(address);
    return /^https?:$/.test(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

function commonest(values) {
  const times = new Map();
  for (const value of values) times.set(value, (times.get(value) ?? 0) + 1);
  return [...times].reduce((most, one) => (one[1] > most[1] ? one : most))[0];
}

/** The folder that all paths stand in; "" for the root. */
function commonFolder(paths) {
  const folders = paths.map((path) => path.split("/").slice(0, -1));
  const [first, ...rest] = folders;
  let length = first.length;
  for (const folder of rest) {
    let same = 0;
    while (same < length && folder[same] === first[same]) same += 1;
    length = same;
  }
  return first.slice(0, length).join("/");
}

function byFolder(paths, base) {
  /** Paths by what stands first below the base. @type {Map<string, string[]>} */
  const groups = new Map();
  for (const path of paths) {
    const [first] = below(path, base);
    const key = first.replace(/\.html?$/, "");
    groups.set(key, [...(groups.get(key) ?? []), path]);
  }
  return [...groups].map(([key, group]) => {
    const deep = group.some((path) => below(path, base).length > 1);
    const title = titleOf(key === "" ? base : key, base);
    return { title, pages: deep ? [`${base}/${key}/*`] : group };
  });
}

/** The names in a path below a folder. */
const below = (path, base) => path.slice(base.length).replace(/^\/|\/$/g, "").split("/");

/** A title made of a path. */
function titleOf(page, base = "") {
  const path = parsed(page)?.pathname ?? page;
  const folder = path.replace(/\/\*?$/, "");
  if (folder === base) return base === "" ? "Home" : titleOf(base);
  const name = folder.split("/").at(-1).replace(/\.html?$/, "").replace(/^index$/, "");
  let words = name;
  try {
    words = decodeURIComponent(name);
  } catch {
    // It stays as it is written.
  }
  words = words.replace(/[-_+\s]+/g, " ").trim();
  return clipped(words && words[0].toUpperCase() + words.slice(1)) || "Home";
}

/**
 * The address of a site, as people type it: its origin, as browsers send it, and the folder in it.
 * @param {string} address with or without `https://`
 * @returns {{origin: string, base: string}|null} null: it is no address
 */
export function siteOf(address) {
  const typed = address.trim();
  if (/\s/.test(typed) || /^\//.test(typed)) return null;
  const url = parsed(/^[a-z][a-z0-9+.-]*:\/\//i.test(typed) ? typed : `https://${typed}`);
  if (!url) return null;
  return { origin: url.origin, base: url.pathname.replace(/\/[^/]*\.html?$/, "").replace(/\/+$/, "") };
}

const clipped = (text) => [...text].slice(0, MAX_TITLE).join("");

const shortened = (text) => (text.length > 60 ? `${text.slice(0, 60)}…` : text);

const ENTITY = /&(?:#x([0-9a-f]+)|#([0-9]+)|(amp|lt|gt|quot|apos));/gi;
const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function entity(whole, hex, decimal, name) {
  if (name) return NAMED[name.toLowerCase()];
  const code = hex ? parseInt(hex, 16) : Number(decimal);
  return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
}
