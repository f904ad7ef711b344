// The stream of events, and how often a page acts on it.

const RETRY_MS = 3000;
const PATIENCE_MS = 1500;

// Calls `onEvent(event)` for each event after `lastId`, and `onResume()` when a lost stream is back.
// EventSource sends Last-Event-ID by itself when it reconnects. A hidden tab closes its stream, as a
// browser keeps only six connections to one host, and resumes from the last id when it is seen.
export function follow(url, lastId, { onEvent, onResume, status }) {
  let source = null;
  let last = lastId;
  let lost = false;
  let timer = null;

  function say(word, kind) {
    if (status.textContent !== word) status.textContent = word;
    status.className = `stream ${kind}`;
  }
  function opened() {
    clearTimeout(timer);
    timer = null;
    say("live", "live");
    if (lost) onResume();
    lost = false;
  }
  function interrupted() {
    lost = true;
    timer ??= setTimeout(() => say("reconnecting…", "lost"), PATIENCE_MS);
    if (source.readyState === EventSource.CLOSED) setTimeout(start, RETRY_MS);
  }
  function received(message) {
    last = Number(message.lastEventId) || last;
    onEvent(JSON.parse(message.data));
  }
  function start() {
    source?.close();
    if (document.hidden) return;
    source = new EventSource(`${url}?after=${last}`);
    source.onopen = opened;
    source.onerror = interrupted;
    for (const kind of ["campaign", "trial", "recommendation"]) source.addEventListener(kind, received);
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? source?.close() : start()));
  start();
}

// A function that runs `action` soon, never twice at once, and at most once in `pause()` ms.
export function batched(action, pause) {
  let wanted = false;
  let busy = false;
  return async () => {
    wanted = true;
    if (busy) return;
    busy = true;
    while (wanted) {
      wanted = false;
      try {
        await action();
      } catch (error) {
        console.warn(error.message);
      }
      await new Promise((resolve) => setTimeout(resolve, pause()));
    }
    busy = false;
  };
}
