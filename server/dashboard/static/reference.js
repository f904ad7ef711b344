// The reference of the API: shows what has all the words that are searched for, and copies calls.

const search = document.getElementById("search");
const found = document.getElementById("found");
const told = [...document.querySelectorAll("[data-told]")];
const links = new Map(
  [...document.querySelectorAll("[data-for]")].map((item) => [item.dataset.for, item]),
);
const texts = new Map();

function text(article) {
  if (!texts.has(article)) texts.set(article, article.textContent.toLowerCase());
  return texts.get(article);
}

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const article of told) {
    const fits = words.every((word) => text(article).includes(word));
    article.hidden = !fits;
    links.get(article.id).hidden = !fits;
    count += fits;
  }
  for (const group of document.querySelectorAll("[data-group]")) {
    group.hidden = !group.querySelector("[data-told]:not([hidden])");
  }
  found.textContent = words.length ? `${count} of ${told.length}` : "";
}

// A link to what the search has hidden ends the search.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target || !target.closest("[hidden]")) return;
  search.value = "";
  show();
  target.scrollIntoView();
}

async function copy(button) {
  await navigator.clipboard.writeText(button.closest(".sample").querySelector("pre").textContent);
  button.textContent = "Copied";
}

search.closest("[hidden]").hidden = false;
search.addEventListener("input", show);
window.addEventListener("hashchange", reveal);
document.addEventListener("click", ({ target }) => {
  if (target.matches("[data-copy]")) copy(target);
});
if (navigator.clipboard) {  // browsers give it to pages of this machine or over https alone
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
}
if (matchMedia("(max-width: 959px)").matches) document.querySelector(".contents details").open = false;
show();
document.body.dataset.ready = "true";
