// Answers while one types: asked at a pause, the newest question alone, and kept by question.

import { postNodes } from "./requests.js";

const PAUSE_MS = 250;
const SLOW_MS = 300; // before that a mark of progress would only flicker
const KEPT = 100;

// Asks `url` with what `question()` gives, and puts the answer into `region`. Where `question()` is
// null nothing is asked. `shown` is called with every answer that is shown.
export function answers({ url, question, region, progress, shown = () => {} }) {
  const kept = new Map();
  let pause = 0;
  let asked = null;

  async function ask() {
    const body = question();
    asked?.abort();
    if (body === null) return;
    const key = JSON.stringify(body);
    const known = kept.get(key);
    if (known) {
      show(known, key);
      return;
    }
    const mine = new AbortController();
    asked = mine;
    const slow = setTimeout(() => (progress.hidden = false), SLOW_MS);
    region.setAttribute("aria-busy", "true");
    try {
      show(await postNodes(url, body, mine.signal), key);
    } catch (problem) {
      if (mine.signal.aborted) return;
      region.replaceChildren(refusal(problem));
    } finally {
      clearTimeout(slow);
      if (asked === mine || !mine.signal.aborted) settle();
    }
  }

  function show(fragment, key) {
    kept.delete(key);
    kept.set(key, fragment);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
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
