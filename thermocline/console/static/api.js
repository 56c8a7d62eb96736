// Asks the console's server. An error is its sentence; one of a login that is over ends the page.

export class Failure extends Error {
  constructor(status, document) {
    super(document?.error?.message ?? "the console does not answer; is it running?");
    this.status = status;
    this.kind = document?.error?.class ?? "NoConsole";
  }
}

async function call(method, path, options = {}) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { method, credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, null);
  }
  if (response.status === 304) return { response, document: null };
  let document = null;
  try {
    document = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!response.ok) {
    if (response.status === 401 && path !== "login" && path !== "session") window.dispatchEvent(new Event("login-over"));
    throw new Failure(response.status, document);
  }
  return { response, document };
}

export async function get(path, parameters) {
  const query = parameters ? `?${new URLSearchParams(parameters)}` : "";
  return (await call("GET", path + query)).document;
}

export async function post(path, body) {
  const options = { headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) };
  return (await call("POST", path, options)).document;
}

export async function remove(path) {
  return (await call("DELETE", path)).document;
}

const PERIOD_MS = 1000;
const RETRY_MS = 2000;

// Asks a page's document when the answer to all tabs is due again, once a second or, of a busy server, less often; returns what ends it.
// While a page is not looked at it asks nothing.
export function poll(path, parameters, onDocument, onProblem) {
  const stop = new AbortController();
  const query = parameters ? `?${new URLSearchParams(parameters)}` : "";
  let etag = null;
  let timer = 0;
  let isAsking = false;

  async function ask() {
    if (document.hidden || isAsking) return;
    isAsking = true;
    let pause = PERIOD_MS;
    try {
      const headers = etag ? { "if-none-match": etag } : {};
      const answer = await call("GET", path + query, { headers, signal: stop.signal });
      pause = Math.max(100, Number(answer.response.headers.get("x-due-ms") ?? PERIOD_MS));
      if (answer.document) {
        etag = answer.response.headers.get("etag");
        onDocument(answer.document, true);
      } else onDocument(null, false);
    } catch (error) {
      if (error.name === "AbortError") return;
      etag = null;
      pause = RETRY_MS;
      onProblem(error);
    }
    isAsking = false;
    if (!stop.signal.aborted) timer = setTimeout(ask, pause);
  }

  function wake() {
    clearTimeout(timer);
    ask();
  }

  document.addEventListener("visibilitychange", wake, { signal: stop.signal });
  ask();
  return () => {
    clearTimeout(timer);
    stop.abort();
  };
}
