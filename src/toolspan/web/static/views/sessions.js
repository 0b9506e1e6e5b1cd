// Sessions: all sessions as one sortable, filtered table; with `q`, what was found in them.
// Query: sort, since, until, mark (a session to compare), the facets; q, in, regex, case (search).
import { html, useEffect, useMemo, useRef } from "../lib.js";
import { useApi, useLive } from "../api.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Facts, LiveBadge, clientName, usageTokens } from "../components/badges.js";
import { Answer, Empty } from "../components/messages.js";
import { StarButton, useNotes } from "../components/notes.js";
import { PeriodFilter, withPeriod } from "../components/period.js";
import { Search } from "./search.js";
import {
  ago,
  baseName,
  cost,
  dateTime,
  duration,
  firstLine,
  number,
  parseTime,
  plural,
  short,
  shortId,
  words,
} from "../components/format.js";
import { useKeys } from "../keys.js";
import { href, navigate } from "../router.js";

export const styles = ["views/sessions.css"];

const FACETS = [
  {
    key: "project",
    title: "Project",
    values: (row) => [row.project || "(none)"],
    label: (value) => baseName(value) || value,
  },
  { key: "client", title: "Client", values: (row) => [row.client], label: clientName },
  { key: "model", title: "Model", values: (row) => row.models },
  { key: "tool", title: "Tool", values: (row) => row.toolNames },
  { key: "state", title: "State", values: (row) => row.stateNames, label: words },
  { key: "starred", title: "Starred", values: (row) => [row.star ? "yes" : "no"] },
  { key: "live", title: "Running", values: (row) => (row.live ? [row.live.status] : ["no"]) },
];

// perf: names of files and versions are not shown
const FIELDS = [
  "id",
  "client",
  "title",
  "first_prompt",
  "project",
  "git_branch",
  "started",
  "ended",
  "duration_ms",
  "models",
  "calls",
  "unsuccessful",
  "states",
  "tools",
  "agents",
].join(",");

const sessionHref = (row) => href("/session/:id", { id: row.id });
const compareHref = (row, mark) =>
  mark && mark !== row.id ? href("/compare", {}, { a: mark, b: row.id }) : href("/sessions", {}, { mark: row.id });

const columnsWith = (mark, isMixed, save) => [
  {
    key: "title",
    title: "Session",
    cell: (row) =>
      html`<span class="first-line">${row.live ? html`<${LiveBadge} status=${row.live.status} /> ` : null}
      <a href=${sessionHref(row)} class="title">${row.about || `untitled ${shortId(row.id)}`}</a></span>
    <span class="second-line faint" title=${row.project}>
      ${row.note ? html`<b class="tone-warn">${row.note}</b> ` : null}
      <span>${[baseName(row.project), row.git_branch, row.models.join(", "), isMixed && clientName(row.client)]
        .filter(Boolean)
        .join(" · ")}</span></span>`,
    value: (row) => row.about.toLowerCase(),
  },
  { key: "project", title: "Project", hide: "always", cell: () => "", value: (row) => baseName(row.project) },
  { key: "client", title: "Client", hide: "always", cell: () => "", value: (row) => row.client },
  {
    key: "ended",
    title: "Last active",
    width: "7.5rem",
    newest: true,
    cell: (row) => html`<span title=${dateTime(row.end)}>${ago(row.end)}</span>`,
    value: (row) => row.end?.getTime(),
  },
  {
    key: "duration",
    title: "Duration",
    hint: "From the first to the last record, idle time included",
    width: "6.5rem",
    align: "right",
    hide: "narrow",
    cell: (row) => duration(row.duration_ms),
    value: (row) => row.duration_ms,
  },
  {
    key: "active",
    title: "Active",
    hint: "Time used by the model, tools, permission and hooks, as in toolspan time: without idle time and gaps",
    width: "6rem",
    align: "right",
    hide: "narrow",
    cell: (row) => duration(row.active),
    value: (row) => row.active,
  },
  {
    key: "calls",
    title: "Calls",
    width: "5rem",
    align: "right",
    cell: (row) => number(row.calls),
    value: (row) => row.calls,
  },
  {
    key: "unsuccessful",
    title: "Unsuccessful",
    hint: "Calls that ended in any way other than success: failed, denied, cancelled, interrupted and the like",
    width: "6.5rem",
    align: "right",
    cell: (row) =>
      row.unsuccessful
        ? html`<a class="tone-bad" href=${href("/calls", {}, { session: row.id, unsuccessful: "yes" })}>
        ${number(row.unsuccessful)}</a>`
        : html`<span class="faint">0</span>`,
    value: (row) => row.unsuccessful,
  },
  {
    key: "agents",
    title: "Agents",
    width: "5rem",
    align: "right",
    hide: "narrow",
    cell: (row) => (row.agents ? number(row.agents) : ""),
    value: (row) => row.agents,
  },
  {
    key: "tokens",
    title: "Tokens",
    width: "5.5rem",
    align: "right",
    hide: "narrow",
    cell: (row) => html`<span title=${number(row.total)}>${short(row.total)}</span>`,
    value: (row) => row.total,
  },
  {
    key: "cost",
    title: "Cost",
    width: "5.5rem",
    align: "right",
    hide: "phone",
    cell: (row) => cost(row.cost),
    value: (row) => row.cost,
  },
  {
    key: "star",
    title: html`<span class="sr-only">Star</span>`,
    width: "2.6rem",
    hide: "phone",
    cell: (row) =>
      html`<${StarButton} star=${row.star} name=${row.about}
        onChange=${() => save(row.id, { star: !row.star, note: row.note })} />`,
    value: (row) => (row.star ? 1 : 0),
  },
  {
    key: "compare",
    title: html`<span class="sr-only">Compare</span>`,
    width: "2.6rem",
    hide: "narrow",
    cell: (row) =>
      html`<a class="compare-with" href=${compareHref(row, mark)} aria-label=${
        mark ? "Compare with this session" : "Compare this session"
      } title=${mark ? "Compare with this session" : "Compare with another session (c)"}>⇄</a>`,
  },
];

const phoneRow = (row) =>
  html`<a class="title" href=${sessionHref(row)}>${row.about || `untitled ${shortId(row.id)}`}
  </a>
  <${Facts} className="faint" items=${[
    row.live && html`<${LiveBadge} status=${row.live.status} />`,
    ago(row.end),
    plural(row.calls, "call"),
    row.unsuccessful > 0 && html`<span class="tone-bad">${number(row.unsuccessful)} unsuccessful</span>`,
    cost(row.cost),
    baseName(row.project),
  ]} />`;

export default function Sessions({ query, setQuery, setTitle }) {
  useEffect(() => setTitle(query.q ? `${query.q}` : "Sessions"), [query.q]);
  return query.q
    ? html`<${Search} key=${query.q} query=${query} setQuery=${setQuery} />`
    : html`<${List} query=${query} setQuery=${setQuery} />`;
}

function useSessions() {
  const sessions = useApi("sessions", { fields: FIELDS }, { live: true });
  const usage = useApi("usage", { by: "session" }, { live: true });
  // the slowest last
  const time = useApi(usage.loading ? null : "time", { limit: 1, fields: "by_session" }, { live: true });
  const { sessions: live } = useLive();
  const rows = useMemo(
    () => (sessions.data ? join(sessions.data, usage.data ?? [], time.data?.by_session ?? [], live ?? []) : []),
    [sessions.data, usage.data, time.data, live],
  );
  return { sessions, usage, rows };
}

function List({ query: address, setQuery }) {
  const query = withPeriod(address);
  const notes = useNotes();
  const { sessions, usage, rows: recorded } = useSessions();
  const rows = useMemo(
    () =>
      recorded.map((row) => ({
        ...row,
        star: Boolean(notes.notes[row.id]?.star),
        note: notes.notes[row.id]?.note ?? "",
      })),
    [recorded, notes.notes],
  );
  const { since, until, mark } = query;
  const active = useRef(null);
  const inPeriod = useMemo(() => {
    const [from, to] = [since ? new Date(since) : null, until ? new Date(until) : null];
    return from || to ? rows.filter((row) => row.end && (!from || row.end >= from) && (!to || row.start < to)) : rows;
  }, [rows, since, until]);
  const shown = useMemo(() => filterRows(inPeriod, FACETS, query), [inPeriod, choiceKey(FACETS, query)]);
  const isMixed = useMemo(() => new Set(rows.map(({ client }) => client)).size > 1, [rows]);
  const columns = useMemo(() => columnsWith(mark, isMixed, notes.save), [mark, isMixed, notes.notes]);
  const marked = mark ? rows.find(({ id }) => id === mark) : null;
  const unsuccessful = useMemo(() => sum(shown, "unsuccessful"), [shown]);
  useKeys({
    c: {
      label: "compare the row with another",
      run: () => active.current && navigate(compareHref(active.current, mark)),
    },
  });
  return html`<${Answer} of=${sessions} what="sessions">${() =>
    html`<section class="page fill sessions">
    <div class="head"><h1>Sessions</h1><${Facts} items=${[
      html`<span data-test="count">${
        shown.length === rows.length
          ? plural(rows.length, "session")
          : `${number(shown.length)} of ${plural(rows.length, "session")}`
      }</span>`,
      plural(sum(shown, "calls"), "call"),
      html`<span class=${unsuccessful ? "tone-bad" : ""}>${number(unsuccessful)} unsuccessful</span>`,
      usage.data && html`<span data-test="tokens">${short(sum(shown, "total"))} tokens</span>`,
      usage.data && cost(sum(shown, "cost")),
    ]} /></div>
    ${
      mark
        ? html`<p class="banner" role="status">Compare <b>${marked?.about || shortId(mark)}
        </b> with: choose ⇄ of another session. <button type="button"
          onClick=${() => setQuery({ mark: null })}>Cancel</button></p>`
        : null
    }
    <${Facets} rows=${inPeriod} facets=${FACETS} query=${query} setQuery=${setQuery}>
      <${PeriodFilter} query=${query} setQuery=${setQuery} /><//>
    ${
      shown.length
        ? html`<${Table} label="Sessions" rows=${shown} columns=${columns} sort=${query.sort ?? "-ended"}
        onSort=${(sort) => setQuery({ sort })} rowKey=${(row) => row.id} rowHref=${sessionHref} rowHeight=${46}
          rowClass=${(row) => `two-lines${row.id === mark ? " marked" : ""}`}
        onActive=${(_, row) => {
          active.current = row;
        }} phone=${phoneRow} />`
        : html`<${Empty}>${rows.length ? "No session matches these filters." : "There are no sessions yet."}<//>`
    }
  </section>`}<//>`;
}

const sum = (rows, key) => rows.reduce((total, row) => total + (row[key] ?? 0), 0);

const activeTime = ({ wall_ms, idle_ms, nothing_recorded_ms }) => wall_ms - idle_ms - nothing_recorded_ms;

function join(sessions, usage, times, live) {
  const used = new Map(usage.map((row) => [row.session, row]));
  const active = new Map(times.map((row) => [row.id, activeTime(row.split)]));
  const status = new Map(live.map((row) => [row.id, row]));
  return sessions.map((row) => {
    const [start, end] = [parseTime(row.started ?? row.ended), parseTime(row.ended ?? row.started)];
    return {
      ...row,
      start,
      end,
      about: firstLine(row.title || row.first_prompt),
      active: active.get(row.id) ?? null,
      total: used.has(row.id) ? usageTokens(used.get(row.id)) : null,
      cost: used.get(row.id)?.cost_usd ?? null,
      live: status.get(row.id) ?? null,
      toolNames: Object.keys(row.tools),
      stateNames: Object.keys(row.states),
    };
  });
}
