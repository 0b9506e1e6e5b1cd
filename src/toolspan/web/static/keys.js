// Keyboard: views add keys with useKeys; `?` lists all that are active.
import { useEffect, useRef } from "./lib.js";

const active = new Set();
let prefix = "";

// A hook: bind keys while the component is shown. `bindings` maps a key ("j", "Enter", "g s") to
// { label, run(event) }. Keys do not act while somebody types, except Escape.
export function useKeys(bindings) {
  const ref = useRef(bindings);
  ref.current = bindings;
  useEffect(() => {
    active.add(ref);
    return () => active.delete(ref);
  }, []);
}

// Return all active keys as [keys, label], those of the view first. Keys that do the same are listed together, and of
// two with the same name only the one that acts.
export function listKeys() {
  const [seen, rows] = [new Set(), []];
  for (const { current } of [...active].reverse()) {
    const own = [];
    for (const [key, { label }] of Object.entries(current)) {
      if (seen.has(key)) continue;
      seen.add(key);
      const same = own.find((row) => row[1] === label);
      if (same) same[0].push(key);
      else own.push([[key], label]);
    }
    rows.push(...own.sort(([one], [other]) => /^\d/.test(one[0]) - /^\d/.test(other[0]))); // objects list digits first
  }
  return rows;
}

function isTyping(target) {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target) && event.key !== "Escape") return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return; // Escape closes the dialog
  const name = prefix ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  const sets = [...active].reverse().map((ref) => ref.current);
  const found = sets.find((set) => name in set);
  if (found) {
    // a row has the focus, not a link in it
    if (name === "Enter" && event.target.closest?.("a, button, summary")) return;
    event.preventDefault();
    // Enter is for the view now
    if (event.target.closest?.("header.top")?.contains(document.activeElement)) document.activeElement.blur();
    found[name].run(event);
  } else if (sets.some((set) => Object.keys(set).some((key) => key.startsWith(`${name} `)))) {
    event.preventDefault();
    prefix = name;
  }
});
