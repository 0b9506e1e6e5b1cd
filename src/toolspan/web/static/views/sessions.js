// Sessions: all sessions as one sortable, filtered table. Query: sort, period, and the facets.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { onLive, useApi } from "../api.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Facts, LiveBadge, clientName } from "../components/badges.js";
import { Answer, Empty } from "../components/messages.js";
import { ago, baseName, cost, dateTime, duration, firstLine, number, parseTime, plural, short, shortId, words } from "../components/format.js";
import { href } from "../router.js";

export const styles = ["views/sessions.css"];

const FACETS = [
  { key: "project", title: "Project", values: (row) => [row.project], label: (value) => baseName(value) || value },
  { key: "client", title: "Client", values: (row) => [row.dialect], label: clientName },
  { key: "model", title: "Model", values: (row) => row.models },
  { key: "tool", title: "Tool", values: (row) => Object.keys(row.tools) },
  { key: "state", title: "State", values: (row) => Object.keys(row.states), label: words },
  { key: "live", title: "Running", values: (row) => (row.live ? [row.live.status] : []) },
  { key: "period", title: "Period", values: periods },
];

// Periods in local time that contain the session's last activity.
function periods(row) {
  if (!row.end) return [];
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = { today: 0, yesterday: 1, "7 days": 6, "30 days": 29, "90 days": 89 };
  return Object.entries(days)
    .filter(([name, back]) => row.end >= midnight - back * 86_400_000 && (name !== "yesterday" || row.end < midnight))
    .map(([name]) => name);
}

const COLUMNS = [
  { key: "title", title: "Session", cell: (row) => html`<a href=${href("/session/:id", { id: row.id })} class="title">${row.about || shortId(row.id)}</a>${
      row.live ? html` <${LiveBadge} status=${row.live.status} />` : null}`, value: (row) => row.about.toLowerCase() },
  { key: "project", title: "Project", width: "11rem", hide: "phone", cell: (row) => html`<span title=${row.project}>${baseName(row.project)}</span>`, value: (row) => baseName(row.project) },
  { key: "client", title: "Client", width: "7rem", hide: "narrow", cell: (row) => clientName(row.dialect), value: (row) => row.dialect },
  { key: "ended", title: "Last active", width: "7.5rem", newest: true, cell: (row) => html`<span title=${dateTime(row.end)}>${ago(row.end)}</span>`, value: (row) => row.end?.getTime() },
  { key: "duration", title: "Duration", width: "6.5rem", align: "right", hide: "phone", cell: (row) => duration(row.lasted), value: (row) => row.lasted },
  { key: "calls", title: "Calls", width: "5rem", align: "right", cell: (row) => number(row.calls), value: (row) => row.calls },
  { key: "wrong", title: "Failed", width: "5rem", align: "right", cell: (row) => (row.wrong ? html`<span class="tone-bad">${number(row.wrong)}</span>` : html`<span class="faint">0</span>`), value: (row) => row.wrong },
  { key: "agents", title: "Agents", width: "5rem", align: "right", hide: "narrow", cell: (row) => (row.agents ? number(row.agents) : ""), value: (row) => row.agents },
  { key: "tokens", title: "Tokens", width: "5.5rem", align: "right", hide: "narrow", cell: (row) => html`<span title=${number(row.total)}>${short(row.total)}</span>`, value: (row) => row.total },
  { key: "cost", title: "Cost", width: "5.5rem", align: "right", hide: "phone", cell: (row) => cost(row.cost), value: (row) => row.cost },
];

const phoneRow = (row) => html`<a class="title" href=${href("/session/:id", { id: row.id })}>${row.about || shortId(row.id)}</a>
  <${Facts} className="faint" items=${[row.live && html`<${LiveBadge} status=${row.live.status} />`, baseName(row.project), ago(row.end), plural(row.calls, "call"),
    row.wrong > 0 && html`<span class="tone-bad">${number(row.wrong)} failed</span>`, cost(row.cost)]} />`;

export default function Sessions({ query, setQuery, setTitle }) {
  const sessions = useApi("sessions", {}, { live: true });
  const usage = useApi("usage", { by: "session" }, { live: true });
  const [live, setLive] = useState([]);
  useEffect(() => setTitle("Sessions"), []);
  useEffect(() => onLive(setLive), []);
  const rows = useMemo(() => (sessions.data ? join(sessions.data, usage.data ?? [], live) : []), [sessions.data, usage.data, live]);
  const shown = useMemo(() => filterRows(rows, FACETS, query), [rows, choiceKey(FACETS, query)]);
  return html`<${Answer} of=${sessions} what="sessions">${() => html`<section class="page fill sessions">
    <div class="head"><h1>Sessions</h1><${Facts} items=${[
      html`<span data-test="count">${shown.length === rows.length ? plural(rows.length, "session") : `${number(shown.length)} of ${plural(rows.length, "session")}`}</span>`,
      plural(sum(shown, "calls"), "call"),
      html`<span class=${sum(shown, "wrong") ? "tone-bad" : ""}>${number(sum(shown, "wrong"))} failed</span>`,
      usage.data && cost(sum(shown, "cost")),
    ]} /></div>
    <${Facets} rows=${rows} facets=${FACETS} query=${query} setQuery=${setQuery} />
    ${shown.length ? html`<${Table} label="Sessions" rows=${shown} columns=${COLUMNS} sort=${query.sort ?? "-ended"}
        onSort=${(sort) => setQuery({ sort })} rowKey=${(row) => row.id} rowHref=${(row) => href("/session/:id", { id: row.id })} phone=${phoneRow} />`
      : html`<${Empty}>No session matches these filters.<//>`}
  </section>`}<//>`;
}

const sum = (rows, key) => rows.reduce((total, row) => total + (row[key] ?? 0), 0);

function join(sessions, usage, live) {
  const costs = new Map(usage.map((row) => [row.session, row.cost_usd]));
  const status = new Map(live.map((row) => [row.id, row]));
  return sessions.map((row) => {
    const [start, end] = [parseTime(row.started), parseTime(row.ended)];
    return {
      ...row, start, end,
      about: firstLine(row.title || row.first_prompt),
      lasted: start && end ? end - start : null,
      total: Object.values(row.tokens).reduce((total, count) => total + count, 0),
      cost: costs.get(row.id) ?? null,
      live: status.get(row.id) ?? null,
    };
  });
}
