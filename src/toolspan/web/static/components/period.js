// Periods of whole days in the zone of the page. The query holds `days` ("7", "yesterday", "quarter", "all"), so that a
// bookmark stays up to date, or exact `since` and `until` (ISO 8601).
import { html } from "../lib.js";
import { dateTime, day } from "./format.js";
import { partsOf, timeOf } from "./zone.js";

export const DAY = 86_400_000;
const CHOICES = [
  ["1", "Today"],
  ["yesterday", "Yesterday"],
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["quarter", "Quarter"],
  ["all", "All"],
];

const KNOWN = [...CHOICES.map(([key]) => key), "week"];

// Midnight `back` days before a time; days with a change of the clock count as days.
export function midnight(time, back = 0) {
  const { year, month, date } = partsOf(new Date(time));
  return timeOf(year, month, date - back);
}

// The first moment of a period that ends on the day of `last`, or null for "all".
export function periodStart(days, last) {
  if (days === "all") return null;
  if (days === "yesterday") return midnight(last, 1);
  if (days === "week") return midnight(last, (partsOf(new Date(last)).weekday + 6) % 7); // since Monday
  if (days === "quarter") {
    const { year, month } = partsOf(new Date(last));
    return timeOf(year, month - (month % 3));
  }
  return midnight(last, Number(days) - 1);
}

// The query of a list with `since` and `until` of its `days`.
export function withPeriod(query) {
  const days = query.days;
  if (!KNOWN.includes(days)) return query;
  const until = days === "yesterday" ? midnight(Date.now()).toISOString() : undefined;
  return { ...query, since: periodStart(days, Date.now())?.toISOString(), until };
}

// "2026-11-02" as midnight
export function parseDay(text) {
  const [year, month, date] = text.split("-").map(Number);
  return timeOf(year, month - 1, date);
}

export const PeriodChoice = ({ value, onChange, choices = CHOICES }) =>
  html`<div class="segments" role="group" aria-label="Period">
  ${choices.map(
    ([key, title]) =>
      html`<button key=${key} type="button" aria-pressed=${key === value}
          onClick=${() => onChange(key)}>${title}</button>`,
  )}</div>`;

// Two days, both included.
export function CustomPeriod({ query, setQuery }) {
  const first = query.since && !query.days ? day(new Date(query.since)) : "";
  const last = query.until && !query.days ? day(new Date(new Date(query.until) - 1)) : "";
  const choose = (change) => {
    const [from, to] = [change.first ?? first, change.last ?? last];
    setQuery({
      days: null,
      since: from ? parseDay(from).toISOString() : null,
      until: to ? midnight(parseDay(to), -1).toISOString() : null,
    });
  };
  return html`<details class="facet custom" name="facet"><summary>Days</summary><div class="menu">
    <label>From <input type="date" value=${first} max=${last || undefined}
      onChange=${(event) => choose({ first: event.target.value })} /></label>
    <label>To <input type="date" value=${last} min=${first || undefined}
      onChange=${(event) => choose({ last: event.target.value })} /></label></div></details>`;
}

// Choices for a list, and its exact period if that is another one.
export function PeriodFilter({ query, setQuery }) {
  const days = query.days ?? (query.since || query.until ? undefined : "all");
  return html`<${PeriodChoice} value=${days} onChange=${(value) =>
    setQuery({ days: value === "all" ? null : value, since: null, until: null })} />
    <${CustomPeriod} query=${query} setQuery=${setQuery} />
      ${days === undefined ? html`<${PeriodMark} query=${query} setQuery=${setQuery} />` : null}`;
}

function text(time) {
  const { hours, minutes, seconds } = partsOf(time);
  return hours || minutes || seconds ? dateTime(time) : day(time);
}

// The exact period of a list as a mark that can be removed.
export function PeriodMark({ query, setQuery }) {
  if (query.days || (!query.since && !query.until)) return null;
  const [since, until] = [query.since, query.until].map((value) => (value ? new Date(value) : null));
  const isDay =
    since && until && Number(midnight(since, -1)) === Number(until) && Number(midnight(since)) === Number(since);
  const label = isDay
    ? day(since)
    : [since && `from ${text(since)}`, until && `before ${text(until)}`].filter(Boolean).join(" ");
  return html`<button type="button" class="mark" title="Remove this period"
      onClick=${() => setQuery({ since: null, until: null })}>${label} <span aria-hidden="true">✕</span>
    <span class="sr-only">, remove</span></button>`;
}

const PERIODS = { today: 0, yesterday: 1, "7 days": 6, "30 days": 29, "90 days": 89 };
export const PERIOD_NAMES = Object.keys(PERIODS);

// Periods in local time that contain a time.
export function periodsOf(time) {
  if (!time) return [];
  const today = midnight(Date.now());
  return Object.entries(PERIODS)
    .filter(([name, back]) => time >= midnight(today, back) && (name !== "yesterday" || time < today))
    .map(([name]) => name);
}
