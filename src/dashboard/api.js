// Requests to this server, with the viewer's cookie, or with the session of a shared page.

/** What the server answered instead of what was asked for. */
export class Refused extends Error {
  /**
   * @param {number} status 0: no answer at all
   * @param {{code?: string, title?: string, detail?: string, errors?: Array}} problem
   */
  constructor(status, problem) {
    super(problem.detail || problem.title || "The server did not answer.");
    this.status = status;
    this.code = problem.code;
    this.errors = problem.errors ?? [];
  }

  /** All that is wrong, in words. */
  get words() {
    const fields = this.errors.map((e) => [e.field, e.detail ?? e.code].filter(Boolean).join(": "));
    return fields.length > 0 ? fields.join("; ") : this.message;
  }
}

async function problem(answer) {
  try {
    return await answer.json();
  } catch {
    return { title: `The server answered ${answer.status}.` };
  }
}

/** Requests of one viewer. */
export class Api {
  /** @param {{token: string}} [share] a read token: the viewer's own login is not touched */
  constructor(share) {
    this.share = share;
    this.session = null;
  }

  /**
   * Sends a request and reads its answer.
   * @param {string} path below the origin
   * @param {{method?: string, body?: any, headers?: Object<string, string>, as?: "json"|"text"}} [options]
   * @throws {Refused}
   */
  async call(path, { method = "GET", body, headers = {}, as = "json" } = {}) {
    const url = new URL(path, location.origin);
    const init = { method, headers: { ...headers }, credentials: "same-origin" };
    if (this.share) {
      url.searchParams.set("session", await this.open());
      init.credentials = "omit";
    }
    if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers["content-type"] = "application/json";
    }
    let answer;
    try {
      answer = await fetch(url, init);
    } catch {
      throw new Refused(0, {});
    }
    if (!answer.ok) {
      if (answer.status === 401) this.session = null;
      throw new Refused(answer.status, await problem(answer));
    }
    if (answer.status === 204) return null;
    try {
      return await (as === "text" ? answer.text() : answer.json());
    } catch {
      // Cut off in the middle.
      throw new Refused(0, {});
    }
  }

  /** The session of a shared page; opened once. */
  open() {
    this.session ??= openSession(this.share.token, false).catch((error) => {
      this.session = null;
      throw error;
    });
    return this.session;
  }

  /** A new session of a shared page, for the one before it has ended. */
  renew() {
    this.session = null;
    return this.open();
  }

  /** Every item of a list, page after page. */
  async all(path) {
    const items = [];
    let cursor = null;
    do {
      const url = new URL(path, location.origin);
      url.searchParams.set("limit", "1000");
      if (cursor) url.searchParams.set("cursor", cursor);
      const page = await this.call(url.pathname + url.search);
      items.push(...page.items);
      cursor = page.next_cursor;
    } while (cursor);
    return items;
  }
}

/**
 * Exchanges a token for a session; with `cookie` the browser keeps it.
 * @returns {Promise<string>}
 * @throws {Refused}
 */
export async function openSession(token, cookie) {
  let answer;
  try {
    answer = await fetch("/v1/sessions", {
      method: "POST",
      credentials: cookie ? "same-origin" : "omit",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ cookie }),
    });
  } catch {
    throw new Refused(0, {});
  }
  if (!answer.ok) throw new Refused(answer.status, await problem(answer));
  return (await answer.json()).session;
}
