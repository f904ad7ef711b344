// The reference of the API: search, links into folded parts, and copying of calls.

const OPENED_AT_MOST = 3;
const search = document.getElementById("search");
const found = document.getElementById("found");
const parts = [...document.querySelectorAll(".told > details")];
const texts = new Map();

function text(part) {
  if (!texts.has(part)) texts.set(part, part.textContent.toLowerCase());
  return texts.get(part);
}

// Shows the parts with all words that are searched for, opened if they are few.
function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const part of parts) part.hidden = !words.every((word) => text(part).includes(word));
  const shown = parts.filter((part) => !part.hidden);
  for (const part of parts) part.open = !part.hidden && shown.length <= OPENED_AT_MOST;
  for (const group of document.querySelectorAll("[data-group]")) {
    group.hidden = !group.querySelector(".told > details:not([hidden])");
  }
  found.textContent = words.length ? `${shown.length} of ${parts.length}` : "";
}

// Opens the part that the address names, and ends a search that has hidden it.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.closest("[hidden]")) {
    search.value = "";
    show();
  }
  if (target.matches("details")) target.open = true;
  target.scrollIntoView();
}

async function copy(button) {
  await navigator.clipboard.writeText(button.closest(".sample").querySelector("pre").textContent);
  button.textContent = "Copied";
}

search.closest("[hidden]").hidden = false;
search.addEventListener("input", show);
addEventListener("hashchange", reveal);
document.addEventListener("click", ({ target }) => {
  if (target.matches("[data-copy]")) copy(target);
});
if (navigator.clipboard) {  // browsers give it to pages of this machine or over https alone
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
}
if (search.value) show();
reveal();
document.body.dataset.ready = "true";
