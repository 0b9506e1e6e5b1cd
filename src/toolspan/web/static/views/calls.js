// Calls: a list of calls across sessions, to which counts in other views lead.
// Query: since, until, project, dialect, session, agent, group (as `toolspan calls`); tool, server, state, error, failed, sort.
import { html, useEffect, useMemo } from "../lib.js";
import { useApi } from "../api.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Facts, StateBadge, isFailed } from "../components/badges.js";
import { Answer, Empty } from "../components/messages.js";
import { PeriodFilter } from "../components/period.js";
import { baseName, clock, day, dateTime, duration, firstLine, number, parseTime, plural, shortId, words } from "../components/format.js";
import { href } from "../router.js";

const FIELDS = "id,tool,state,error_kind,error_group,error_text,requested,finished,duration_ms,target,message,session,agent,background";
const ASKED = ["since", "until", "project", "dialect", "session", "agent", "group"];

export const serverOf = (tool) => /^mcp__(.+?)__/.exec(tool ?? "")?.[1] ?? null;

const FACETS = [
  { key: "failed", title: "Failed", values: (row) => [row.failed ? "yes" : "no"] },
  { key: "tool", title: "Tool", values: (row) => [row.tool || "(none)"] },
  { key: "server", title: "MCP server", values: (row) => (row.server ? [row.server] : []) },
  { key: "state", title: "State", values: (row) => [row.state], label: words },
  { key: "error", title: "Error", values: (row) => (row.error_kind ? [row.error_kind] : []), label: words },
  { key: "in", title: "Project", values: (row) => [row.project || "(none)"], label: (value) => baseName(value) || value },
];

const callHref = (row) => href("/call/:id", { id: row.id }, { session: row.session });
const subject = (row) => firstLine(row.target || row.message) || shortId(row.id);

const COLUMNS = [
  { key: "time", title: "Time", width: "10.5rem", newest: true, cell: (row) => html`<span class="faint">${day(row.start)}</span> <span class="mono">${clock(row.start)}</span>`, value: (row) => row.start?.getTime() },
  { key: "state", title: "State", width: "10.5rem", cell: (row) => html`<${StateBadge} state=${row.state} />`, value: (row) => row.state },
  { key: "tool", title: "Tool", width: "10rem", cell: (row) => html`<b title=${row.tool}>${row.tool ?? "?"}</b>`, value: (row) => row.tool },
  { key: "about", title: "About", cell: (row) => html`<a class="mono" href=${callHref(row)} title=${row.failed ? row.message : undefined}>${subject(row)}</a>`, value: (row) => row.target },
  { key: "message", title: "Error", width: "25%", hide: "narrow", cell: (row) => (row.failed ? html`<span class="tone-bad" title=${row.message}>${row.error}</span>` : ""), value: (row) => (row.failed ? row.error : null) },
  { key: "took", title: "Took", hint: "From the request to the result, which may include waiting for permission", width: "6rem", align: "right", cell: (row) => duration(row.duration_ms), value: (row) => row.duration_ms },
  { key: "session", title: "Session", width: "13%", hide: "narrow", cell: (row) => html`<a href=${href("/session/:id", { id: row.session }, { call: row.id })}>${row.title || shortId(row.session)}</a>`, value: (row) => row.title },
];

// If the user denied the call and said why, the reason follows a sentence of the client.
const denialReason = (message) => /^The user doesn't want to proceed [^]*?\bthe user said:\s*([^]+)/.exec(message ?? "")?.[1];
const errorText = (row) => firstLine(denialReason(row.message) || row.error_text || row.message) || words(row.error_kind);

// The text that most failed rows have, if at least two have it, and whether all of them do.
function commonText(rows) {
  const counts = new Map();
  for (const { error } of rows) counts.set(error, (counts.get(error) ?? 0) + 1);
  const [text, count] = [...counts].reduce((most, entry) => (entry[1] > most[1] ? entry : most), ["", 1]);
  return { text, isOnly: count === rows.length };
}

// In a group of errors, what most rows would repeat is shown once, above them.
const columnsWithout = (common) => (common.isOnly ? COLUMNS.filter(({ key }) => key !== "message") : COLUMNS.map((column) => (column.key !== "message" ? column
  : { ...column, cell: (row) => (row.error === common.text ? html`<span class="faint">as above</span>` : column.cell(row)) })));

const phoneRow = (row, common) => html`<a class="mono" href=${callHref(row)}><b>${row.tool ?? "?"}</b> ${subject(row)}</a>
  <${Facts} className="faint" items=${[html`<${StateBadge} state=${row.state} />`, dateTime(row.start), duration(row.duration_ms),
    row.failed && row.error !== common?.text && html`<span class="tone-bad">${row.error.slice(0, 60)}</span>`]} />`;

// A table of the calls that the query selects, with filters. `group` lists the calls of one group of errors.
export function CallList({ query, setQuery, group, children }) {
  const asked = Object.fromEntries([...ASKED.map((key) => [key, query[key]]), ["group", group ?? query.group]]);
  const answer = useApi("calls", { ...asked, fields: FIELDS }, { live: true });
  const sessions = useApi("sessions", { fields: "id,title,first_prompt,project" });
  const names = useMemo(() => new Map((sessions.data ?? []).map((row) => [row.id, row])), [sessions.data]);
  const rows = useMemo(() => (answer.data ?? []).map((row, n) => {
    const session = names.get(row.session);
    return {
      ...row, n, error: errorText(row), start: parseTime(row.requested ?? row.finished), failed: isFailed(row) || Boolean(group), server: serverOf(row.tool),
      title: firstLine(session?.title || session?.first_prompt, 120), project: session?.project,
    };
  }), [answer.data, names, group]);
  const shown = useMemo(() => filterRows(rows, FACETS, query), [rows, choiceKey(FACETS, query)]);
  const common = useMemo(() => (group && rows.length > 1 ? commonText(rows) : null), [group, rows]);
  const columns = useMemo(() => (common?.text ? columnsWithout(common) : COLUMNS), [common]);
  const calls = shown.filter(({ state }) => state !== "orphan_result");
  const total = calls.reduce((sum, row) => sum + (row.duration_ms ?? 0), 0);
  return html`<${Answer} of=${answer} what="calls">${() => html`
    ${children?.({ shown, common: common?.text ?? "" })}
    ${children ? null : html`<div class="head"><h1>Calls</h1><${Facts} items=${[
      html`<span data-test="calls">${plural(calls.length, "call")}</span>`,
      html`<span data-test="failed" class=${calls.some(({ failed }) => failed) ? "tone-bad" : ""}>${number(calls.filter(({ failed }) => failed).length)} failed</span>`,
      total > 0 && html`<span title="The sum over all calls: time in which several ran counts several times, waiting for permission counts, too">${duration(total)} in calls</span>`,
    ]} /></div>`}
    <${Facets} rows=${rows} facets=${FACETS} query=${query} setQuery=${setQuery}><${PeriodFilter} query=${query} setQuery=${setQuery} /><${SessionMark} query=${query} setQuery=${setQuery} names=${names} /><//>
    ${shown.length ? html`<${Table} label="Calls" rows=${shown} columns=${columns} sort=${query.sort ?? "-time"} onSort=${(sort) => setQuery({ sort })}
        rowKey=${(row) => row.n} rowHref=${callHref} rowHeight=${30} phone=${(row) => phoneRow(row, common)} />` : html`<${Empty}>${answer.warnings[0] ?? "No call matches these filters."}<//>`}`}<//>`;
}

function SessionMark({ query, setQuery, names }) {
  if (!query.session) return null;
  const row = names.get(query.session);
  return html`<button type="button" class="mark" onClick=${() => setQuery({ session: null })}>Session: ${firstLine(row?.title || row?.first_prompt, 60) || shortId(query.session)} <span aria-hidden="true">✕</span><span class="sr-only">, remove</span></button>`;
}

export default function Calls({ query, setQuery, setTitle }) {
  useEffect(() => setTitle("Calls"), []);
  return html`<section class="page fill calls"><${CallList} query=${query} setQuery=${setQuery} /></section>`;
}
