// The parts of a page as tabs. Without this script the tabs are links, and all parts are shown. The
// stylesheet hides tabs without content.

import { noted, onReturn } from "./address.js";

const list = document.querySelector(".tabs");
const tabs = [...list.querySelectorAll("a")];
const panels = new Map(tabs.map((tab) => [tab, document.getElementById(tab.hash.slice(1))]));
let opened = () => {};

// Calls `onOpen(panel)` for each tab that is opened, for the first one at once.
export function start(onOpen) {
  opened = onOpen;
  list.setAttribute("role", "tablist");
  for (const [tab, panel] of panels) {
    tab.id = `tab-${panel.id}`;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
  }
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (!tab || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(panels.get(tab).id);
  });
  list.addEventListener("keydown", (event) => {
    const shown = tabs.filter((tab) => tab.checkVisibility());
    const last = shown.length - 1;
    const at = shown.indexOf(document.activeElement);
    const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    open(panels.get(shown[next]).id);
    shown[next].focus();
  });
  onReturn(fromAddress);
  fromAddress();
}

// Opens the tab with this name and notes it in the address.
export function open(name) {
  if (location.hash !== `#${name}`) history.pushState(null, "", `${location.search}#${name}`);
  show(name);
}

export const isOpen = (name) => !document.getElementById(name).hidden;

// A trial in the address stands in the table of trials.
function fromAddress() {
  const name = location.hash.slice(1);
  const known = tabs.some((tab) => panels.get(tab).id === name);
  show(known ? name : noted("trial") ? "trials" : panels.get(tabs[0]).id);
}

function show(name) {
  for (const [tab, panel] of panels) {
    const chosen = panel.id === name;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    panel.hidden = !chosen;
  }
  opened(document.getElementById(name));
}
