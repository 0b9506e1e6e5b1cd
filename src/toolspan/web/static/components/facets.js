// Filters above a list. Their values are in the query of the URL, so a filtered list is a link.
//
// facets: [{ key, title, values(row) -> [string], label?(value) }]. A row passes if, for each facet with a choice, one of
// its values is chosen. Counts are of the rows that pass all other facets.
import { html, useMemo } from "../lib.js";
import { number } from "./format.js";

const chosen = (query, key) => [].concat(query[key] ?? []);

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
    ${facets.map((facet) => html`<${Facet} key=${facet.key} facet=${facet} rows=${rows} facets=${facets} query=${query} setQuery=${setQuery} />`)}
    ${facets.some(({ key }) => chosen(query, key).length)
      ? html`<button type="button" class="quiet" onClick=${() => setQuery(Object.fromEntries(facets.map(({ key }) => [key, null])))}>Clear filters</button>` : null}
  </div>`;
}

function Facet({ facet, rows, facets, query, setQuery }) {
  const values = chosen(query, facet.key);
  const counts = useMemo(() => {
    const map = new Map();
    for (const row of filterRows(rows, facets, query, facet.key)) {
      for (const value of new Set(facet.values(row))) map.set(value, (map.get(value) ?? 0) + 1);
    }
    return [...map].sort((one, other) => other[1] - one[1]);
  }, [rows, choiceKey(facets, query)]);
  const label = facet.label ?? ((value) => value);
  const toggle = (value) => setQuery({ [facet.key]: values.includes(value) ? values.filter((one) => one !== value) : [...values, value] });
  if (counts.length < 2 && !values.length) return null;
  return html`<details class="facet" name="facet">
    <summary class=${values.length ? "chosen" : ""}>${facet.title}${values.length ? html`: <b>${values.map(label).join(", ")}</b>` : ""}</summary>
    <div class="menu">${counts.slice(0, 200).map(([value, count]) => html`<label key=${value}>
      <input type="checkbox" checked=${values.includes(value)} onChange=${() => toggle(value)} />
      <span>${label(value) || "(none)"}</span><span class="count">${number(count)}</span></label>`)}</div>
  </details>`;
}
