// The launch script: shown and copied on demand, so that no view of the page carries its text.

import { getText } from "./requests.js";

export function start(root) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button.closest("[data-script]"));
  });
  // `toggle` does not bubble.
  root.addEventListener("toggle", ({ target }) => {
    if (target.open && target.matches("[data-preview]")) show(target.closest("[data-script]"));
  }, true);
}

async function show(launch) {
  const place = launch.querySelector("pre");
  try {
    place.textContent = await getText(launch.dataset.script);
  } catch (problem) {
    place.textContent = problem.message;
  }
}

async function copy(launch) {
  const status = launch.querySelector("[role=status]");
  try {
    await write(await getText(launch.dataset.script), launch);
    status.textContent = "Copied.";
  } catch (problem) {
    status.textContent = `Not copied: ${problem.message}`;
  }
}

// Browsers allow the clipboard only to pages of this machine or over https; elsewhere the text is
// selected, for the user to copy.
async function write(text, launch) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const place = launch.querySelector("pre");
  launch.querySelector("details").open = true;
  place.textContent = text;
  getSelection().selectAllChildren(place);
  throw new Error("this address may not use the clipboard; the script is selected below.");
}
