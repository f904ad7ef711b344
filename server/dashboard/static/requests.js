// Requests to this service; every refusal becomes a Problem with its fields.

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The service answered ${status}.`);
    this.status = status;
    this.errors = body.errors ?? [];
  }
}

async function ask(url, options = {}) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, { detail: "The service does not answer. Is autotune serve still running?" });
  }
  if (response.ok) return response;
  const text = await response.text();
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    // Not a problem document: its status is all there is to say.
  }
  throw new Problem(response.status, body);
}

export const getJson = async (url) => (await ask(url)).json();
export const getText = async (url) => (await ask(url)).text();

// A fragment that the server rendered, as nodes.
export const getNodes = async (url) => nodes(await getText(url));

// The same, as the answer to a body.
export async function postNodes(url, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const response = await ask(url, { method: "POST", headers, body: JSON.stringify(body), signal });
  return nodes(await response.text());
}

// The same, as the answer to a file.
export async function upload(url, file, signal) {
  const headers = { "Content-Type": "application/octet-stream" };
  const response = await ask(url, { method: "POST", headers, body: file, signal });
  return nodes(await response.text());
}

function nodes(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// Resolves to the answer's JSON, or null where there is none.
export async function send(method, url, body, headers = {}) {
  const options = { method, headers };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json", ...headers };
  }
  const response = await ask(url, options);
  return response.status === 204 ? null : response.json();
}

let sent = { body: "", key: "" };

// Creates a campaign; one key for one body, so that a second click or a retry creates no second one.
export function create(url, body) {
  const text = JSON.stringify(body);
  if (sent.body !== text) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    sent = { body: text, key: [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("") };
  }
  return send("POST", url, body, { "Idempotency-Key": sent.key });
}
