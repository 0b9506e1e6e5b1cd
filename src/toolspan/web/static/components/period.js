// Periods of whole days in local time. The query holds `days` ("7", "all") or exact `since` and `until` (ISO 8601).
import { html } from "../lib.js";
import { dateTime, day } from "./format.js";

export const DAY = 86_400_000;
const CHOICES = [["1", "Today"], ["7", "7 days"], ["30", "30 days"], ["90", "90 days"], ["all", "All"]];

// Local midnight `back` days before a time; days with a change of the clock count as days.
export function midnight(time, back = 0) {
  const date = new Date(time);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() - back);
}

// The first moment of a period of whole days that ends on the day of `last`, or null for "all".
export const periodStart = (days, last) => (days === "all" ? null : midnight(last, Number(days) - 1));

// "2026-11-02" as local midnight
export function parseDay(text) {
  const [year, month, date] = text.split("-").map(Number);
  return new Date(year, month - 1, date);
}

export const PeriodChoice = ({ value, onChange, choices = CHOICES }) => html`<div class="segments" role="group" aria-label="Period">
  ${choices.map(([key, title]) => html`<button key=${key} type="button" aria-pressed=${key === value} onClick=${() => onChange(key)}>${title}</button>`)}</div>`;

// Choices for a list, and its exact period if that is another one.
export function PeriodFilter({ query, setQuery }) {
  const starts = new Map(CHOICES.map(([days]) => [periodStart(days, Date.now())?.toISOString(), days]));
  const days = query.until ? undefined : starts.get(query.since);
  return html`<${PeriodChoice} value=${days} onChange=${(value) => setQuery({ since: periodStart(value, Date.now())?.toISOString() ?? null, until: null })} />
    ${days === undefined ? html`<${PeriodMark} query=${query} setQuery=${setQuery} />` : null}`;
}

const text = (time) => (time.getHours() || time.getMinutes() || time.getSeconds() ? dateTime(time) : day(time));

// The exact period of a list as a mark that can be removed.
export function PeriodMark({ query, setQuery }) {
  if (!query.since && !query.until) return null;
  const [since, until] = [query.since, query.until].map((value) => (value ? new Date(value) : null));
  const isDay = since && until && Number(midnight(since, -1)) === Number(until) && Number(midnight(since)) === Number(since);
  const label = isDay ? day(since) : [since && `from ${text(since)}`, until && `before ${text(until)}`].filter(Boolean).join(" ");
  return html`<button type="button" class="mark" title="Remove this period" onClick=${() => setQuery({ since: null, until: null })}>${label} <span aria-hidden="true">✕</span><span class="sr-only">, remove</span></button>`;
}
