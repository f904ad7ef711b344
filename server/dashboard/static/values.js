// What stands in a form, as the JSON that the API takes. Nothing is judged here: what cannot be read
// as its kind is sent as it was typed, and the API says at which field it is wrong.

const READERS = {
  text: (text) => text,
  number: (text) => asNumber(text),
  tokens: (text) => asTokens(text),
  dimension: (text) => asDimension(text),
  flag: (text) => text === "true",
  moment: (text) => (Number.isNaN(Date.parse(text)) ? text : new Date(text).toISOString()),
};
const LETTERS = { k: 1e3, m: 1e6, b: 1e9, t: 1e12 };

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

// `300e9`, `300B`, `1.4 T`.
function asTokens(text) {
  const match = /^([\d.,]+)\s*([kmbt])$/i.exec(text);
  return match ? asNumber(match[1]) * LETTERS[match[2].toLowerCase()] : asNumber(text);
}

// `auto`, `4`, `1, 2, 4`, `1..16`, `8..64 step 8`, `true`, `full`.
function asDimension(text) {
  const range = /^(\d+)\s*\.\.\s*(\d+)(?:\s*step\s*(\d+))?$/i.exec(text);
  if (range) return { minimum: Number(range[1]), maximum: Number(range[2]), step: Number(range[3] ?? 1) };
  const parts = text.split(",").map((part) => asScalar(part.trim()));
  return parts.length === 1 ? parts[0] : parts;
}

function asScalar(text) {
  if (text === "true" || text === "false") return text === "true";
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}
