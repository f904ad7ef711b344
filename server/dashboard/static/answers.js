// Answers while the user types: only the newest question is sent, at a pause; answers are cached.

import { postNodes } from "./requests.js";

const PAUSE_MS = 250;
const SLOW_MS = 300; // before that a mark of progress would only flicker
const MOST_CACHED = 100;

// Posts what `question()` returns to `url` and puts the answer into `region`; sends nothing if it
// returns null. `shown` is called after each answer.
export function answers({ url, question, region, progress, shown = () => {} }) {
  const cache = new Map();
  let pause = 0;
  let newest = null;

  async function ask() {
    const body = question();
    newest?.abort();
    if (body === null) return;
    const key = JSON.stringify(body);
    const known = cache.get(key);
    if (known) {
      show(known, key);
      return;
    }
    const mine = new AbortController();
    newest = mine;
    const slow = setTimeout(() => (progress.hidden = false), SLOW_MS);
    region.setAttribute("aria-busy", "true");
    try {
      show(await postNodes(url, body, mine.signal), key);
    } catch (problem) {
      if (mine.signal.aborted) return;
      region.replaceChildren(refusal(problem));
    } finally {
      clearTimeout(slow);
      if (newest === mine || !mine.signal.aborted) settle();
    }
  }

  function show(fragment, key) {
    cache.delete(key);
    cache.set(key, fragment);
    if (cache.size > MOST_CACHED) cache.delete(cache.keys().next().value);
    region.replaceChildren(fragment.cloneNode(true));
    settle();
    shown();
  }

  function settle() {
    region.removeAttribute("aria-busy");
    progress.hidden = true;
  }

  return {
    now: ask,
    soon() {
      clearTimeout(pause);
      pause = setTimeout(ask, PAUSE_MS);
    },
  };
}

function refusal(problem) {
  const box = document.createElement("ul");
  box.className = "notice warning check-list refusal";
  const lines = problem.errors?.length
    ? problem.errors.map(({ field, reason, valid }) => `${field}: ${reason}${valid ? ` (valid: ${valid})` : ""}`)
    : [problem.message];
  for (const line of lines) {
    const item = document.createElement("li");
    item.textContent = line;
    box.append(item);
  }
  return box;
}
