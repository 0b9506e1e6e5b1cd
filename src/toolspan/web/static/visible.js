// Texts may contain characters that are not drawn, or that reorder others, to look like other texts: they are shown by
// number, such as <U+202E>. types/visible_text.py does the same for questions. Tabs and line breaks stay, and so do the
// joiners and variation selectors of emoji.

const INVISIBLE = new RegExp(
  [
    "[\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f",
    "\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufeff\\uffa0",
    "\\ufff9-\\ufffb\\u{1d159}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]",
    "|(?<![\\p{Emoji}\\u200d])[\\ufe00-\\ufe0f]|(?<![\\p{Emoji}\\ufe0f])\\u200d|\\u200d(?!\\p{Emoji})",
  ].join(""),
  "u",
);
const ALL = new RegExp(INVISIBLE.source, "gu");
const ATTRIBUTES = ["title", "aria-label", "placeholder", "alt", "label"];
const PLAIN = new Set(["option", "title", "text", "tspan", "textarea", "style", "script"]);
const MARK = "escape";

const number = (character) => `<U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;

// Return a text in which every character is visible.
export const escapeText = (text) => (INVISIBLE.test(text) ? text.replace(ALL, number) : text);

// Split a text into pieces: those with an odd index are escapes.
function split(text) {
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(ALL)) {
    if (match.index > end || !pieces.length) pieces.push(text.slice(end, match.index), number(match[0]));
    else pieces[pieces.length - 1] += number(match[0]);
    end = match.index + match[0].length;
  }
  return [...pieces, text.slice(end)];
}

function visibleChildren(child, type, h) {
  if (typeof child === "string") {
    if (!INVISIBLE.test(child)) return child;
    return PLAIN.has(type)
      ? escapeText(child)
      : split(child).map((piece, n) => (n % 2 ? h("mark", { class: MARK }, piece) : piece));
  }
  if (!Array.isArray(child)) return child;
  let changed = null; // perf: most have no such character
  for (let n = 0; n < child.length; n += 1) {
    const shown = visibleChildren(child[n], type, h);
    if (shown !== child[n]) (changed ??= [...child])[n] = shown;
  }
  return changed ?? child;
}

// Change the texts of a virtual element.
export function makeVisible({ type, props }, h) {
  if (typeof type !== "string") return;
  for (const name of ATTRIBUTES) if (typeof props[name] === "string") props[name] = escapeText(props[name]);
  if (props.children) props.children = visibleChildren(props.children, type, h);
}

// Change the texts of an element that was made from HTML.
export function makeElementVisible(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) if (INVISIBLE.test(node.data)) found.push(node);
  for (const node of found) {
    node.replaceWith(
      ...split(node.data).map((piece, n) => {
        if (n % 2 === 0) return piece;
        return Object.assign(document.createElement("mark"), { className: MARK, textContent: piece });
      }),
    );
  }
  for (const name of ATTRIBUTES) {
    for (const element of root.querySelectorAll(`[${name}]`))
      element.setAttribute(name, escapeText(element.getAttribute(name)));
  }
}
