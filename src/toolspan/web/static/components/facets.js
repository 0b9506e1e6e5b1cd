// Filters above a list. Their values are in the query of the URL, so a filtered list is a link.
//
// facets: [{ key, title, values(row) -> [string], label?(value) }]. A row passes if, for each facet with a choice, one
// of its values (never "") is chosen. Counts are of the rows that pass all other facets.
import { Component, html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { number } from "./format.js";

const MAX_SHOWN = 200;
const SEARCH_FROM = 12;
const chosen = (query, key) => [].concat(query[key] ?? []).filter(Boolean);

// A text that changes only with the choices, for useMemo: the order of a list is in the query, too.
export const choiceKey = (facets, query) => JSON.stringify(facets.map(({ key }) => query[key] ?? null));

export function filterRows(rows, facets, query, except = null) {
  const active = facets.filter(({ key }) => key !== except && chosen(query, key).length);
  if (!active.length) return rows;
  const tests = active.map((facet) => [facet, new Set(chosen(query, facet.key))]);
  return rows.filter((row) => tests.every(([facet, set]) => facet.values(row).some((value) => set.has(value))));
}

export function Facets({ rows, facets, query, setQuery, children }) {
  return html`<div class="facets" role="group" aria-label="Filters">
    ${children}
    ${facets.map(
      (facet) =>
        html`<${Facet} key=${facet.key} facet=${facet} rows=${rows} facets=${facets} query=${query}
            setQuery=${setQuery} />`,
    )}
    ${
      facets.some(({ key }) => chosen(query, key).length)
        ? html`<button type="button" class="quiet" onClick=${() =>
            setQuery(Object.fromEntries(facets.map(({ key }) => [key, null])))}>Clear filters</button>`
        : null
    }
  </div>`;
}

function hasChoice(rows, facet) {
  const values = new Set();
  for (const row of rows) {
    for (const value of facet.values(row)) values.add(value);
    if (values.size > 1) return true;
  }
  return false;
}

function Facet({ facet, rows, facets, query, setQuery }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  const values = chosen(query, facet.key);
  const useful = useMemo(() => hasChoice(rows, facet), [rows, facet]);
  useEffect(() => {
    if (!open) return undefined;
    const close = (event) => {
      if (event.type === "keydown" ? event.key === "Escape" : !box.current?.contains(event.target))
        box.current?.removeAttribute("open");
    };
    addEventListener("pointerdown", close);
    addEventListener("keydown", close);
    return () => {
      removeEventListener("pointerdown", close);
      removeEventListener("keydown", close);
    };
  }, [open]);
  if (!useful && !values.length) return null;
  const label = facet.label ?? ((value) => value);
  return html`<details class="facet" name="facet" ref=${box} onToggle=${(event) => setOpen(event.target.open)}>
    <summary class=${values.length ? "chosen" : ""}>${facet.title}
      ${values.length ? html`: <b>${values.map(label).join(", ")}</b>` : ""}</summary>
    ${
      open
        ? html`<${Menu} facet=${facet} rows=${rows} facets=${facets} query=${query} setQuery=${setQuery}
          values=${values} label=${label} />`
        : null
    }
  </details>`;
}

// perf: values are counted and drawn only while the menu is open, and not again when one of them is chosen.
function Menu({ facet, rows, facets, query, setQuery, values, label }) {
  const [words, setWords] = useState("");
  const others = facets.filter(({ key }) => key !== facet.key);
  const counted = useMemo(() => {
    const map = new Map();
    for (const row of filterRows(rows, others, query)) {
      const own = facet.values(row);
      for (const value of own.length > 1 ? new Set(own) : own) map.set(value, (map.get(value) ?? 0) + 1);
    }
    const place = facet.order ? ([value]) => facet.order.indexOf(value) : ([, count]) => -count;
    return [...map].sort((one, other) => place(one) - place(other));
  }, [rows, choiceKey(others, query)]);
  const missing = values.filter((value) => !counted.some(([name]) => name === value));
  const counts = missing.length ? [...counted, ...missing.map((value) => [value, 0])] : counted;
  const shown = counts.filter(([value]) => `${label(value)} ${value}`.toLowerCase().includes(words.toLowerCase()));
  const toggle = (value) =>
    setQuery({ [facet.key]: values.includes(value) ? values.filter((one) => one !== value) : [...values, value] });
  return html`<div class="menu">
    ${
      counts.length > SEARCH_FROM
        ? html`<input type="search" aria-label=${`Find in ${facet.title}`} placeholder="Find"
          value=${words} onInput=${(event) => setWords(event.target.value)} />`
        : null
    }
    ${shown.slice(0, MAX_SHOWN).map(
      ([value, count]) =>
        html`<${Choice} key=${value} value=${value} count=${count} text=${label(value)}
            checked=${values.includes(value)} onChange=${toggle} />`,
    )}
    ${
      shown.length > MAX_SHOWN
        ? html`<p class="faint">${number(shown.length - MAX_SHOWN)} more; type to find them</p>`
        : null
    }
  </div>`;
}

class Choice extends Component {
  shouldComponentUpdate(next) {
    const same =
      next.value === this.props.value && next.count === this.props.count && next.checked === this.props.checked;
    this.toggle = next.onChange; // knows the latest choices
    return !same;
  }

  render({ value, count, text, checked, onChange }) {
    this.toggle = onChange;
    return html`<label title=${value}><input type="checkbox" checked=${checked} onChange=${() => this.toggle(value)} />
      <span>${text}</span><span class="count">${number(count)}</span></label>`;
  }
}
