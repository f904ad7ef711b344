// What a page shows besides its content, kept in its address: for a reload, a link, and the way back.

const read = () => new URLSearchParams(location.search);

// What the address says of `name`; empty where it says nothing.
export const noted = (name) => read().get(name) ?? "";

// Notes values, empty ones by leaving them out; the browser's way back leads to what was before.
export function note(values) {
  const after = read();
  for (const [name, value] of Object.entries(values)) {
    if (value) after.set(name, value);
    else after.delete(name);
  }
  if (String(after) === String(read())) return;
  history.pushState(null, "", `${location.pathname}${after.size ? `?${after}` : ""}${location.hash}`);
}

// Calls `action` when the browser goes back or forth to another state of this page.
export const onReturn = (action) => addEventListener("popstate", action);
