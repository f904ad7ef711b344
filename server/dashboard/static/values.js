// What stands in a form, as the JSON that the API takes. Nothing is judged here: dimensions and tokens
// are sent as they were typed, as is what cannot be read as its kind, and the API reads them.

const READERS = {
  text: (text) => text,
  number: (text) => asNumber(text),
  flag: (text) => text === "true",
  moment: (text) => (Number.isNaN(Date.parse(text)) ? text : new Date(text).toISOString()),
};

// Inputs named `a.b` become `{a: {b: …}}`; empty and hidden ones are left out.
export function values(form) {
  const result = {};
  for (const input of form.elements) {
    const { choice, kind = "text" } = input.dataset;
    const skipped = !input.name || choice !== undefined || input.closest("[hidden]");
    const text = skipped ? "" : input.value.trim();
    if (text !== "") place(result, input.name.split("."), READERS[kind](text));
  }
  return result;
}

function place(target, path, value) {
  const [first, ...rest] = path;
  if (rest.length === 0) target[first] = value;
  else place((target[first] ??= {}), rest, value);
}

function asNumber(text) {
  const number = Number(text.replaceAll(",", ""));
  return Number.isFinite(number) ? number : text;
}
