// Calls: a list of calls across sessions, to which counts in other views lead.
// Query: since, until, project, client, session, agent, group (as `toolspan calls`); tool, kind, program, server,
// state, error, unsuccessful, sort.
import { html, useEffect, useMemo } from "../lib.js";
import { useApi } from "../api.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Facts, StateBadge } from "../components/badges.js";
import { Answer, Empty } from "../components/messages.js";
import { PeriodFilter, withPeriod } from "../components/period.js";
import {
  baseName,
  clock,
  dateTime,
  day,
  duration,
  firstLine,
  number,
  oneLine,
  parseTime,
  plural,
  shortId,
  words,
} from "../components/format.js";
import { isUnsuccessful, kindName } from "../components/words.js";
import { href } from "../router.js";

const FIELDS = [
  "id",
  "tool",
  "kind",
  "state",
  "error_kind",
  "error_group",
  "error_program",
  "error_text",
  "requested",
  "finished",
  "duration_ms",
  "wait_ms",
  "target",
  "message",
  "session",
  "agent",
  "background",
].join(",");
const SUM_HINT =
  "The sum over all calls: time in which several ran counts several times, known waits for permission not at all";
const ASKED = ["since", "until", "project", "client", "session", "agent", "group"];

export const serverOf = (tool) => /^mcp__(.+?)__/.exec(tool ?? "")?.[1] ?? null;

const FACETS = [
  { key: "unsuccessful", title: "Unsuccessful", values: (row) => [row.unsuccessful ? "yes" : "no"] },
  { key: "tool", title: "Tool", values: (row) => [row.tool || "(none)"] },
  { key: "kind", title: "Kind", values: (row) => (row.kind ? [row.kind] : []), label: words },
  { key: "program", title: "Failed program", values: (row) => (row.error_program ? [row.error_program] : []) },
  { key: "server", title: "MCP server", values: (row) => (row.server ? [row.server] : []) },
  { key: "state", title: "State", values: (row) => [row.state], label: words },
  { key: "error", title: "Error", values: (row) => (row.error_kind ? [row.error_kind] : []), label: kindName },
  {
    key: "in",
    title: "Project",
    values: (row) => [row.project || "(none)"],
    label: (value) => baseName(value) || value,
  },
];

const callHref = (row) => href("/call/:id", { id: row.id }, { session: row.session });
const subject = (row) => oneLine(row.target || row.message) || shortId(row.id);

const COLUMNS = [
  {
    key: "state",
    title: html`<span class="sr-only">State</span>`,
    width: "2.4rem",
    cell: (row) => html`<${StateBadge} state=${row.state} text=${false} />`,
    value: (row) => row.state,
  },
  {
    key: "target",
    title: "Call",
    cell: (row) =>
      html`<span class="first-line"><b title=${row.tool}>${row.tool ?? "?"}
      </b> <a class="mono" href=${callHref(row)}>${subject(row)}</a></span>
    <span class="second-line">${row.note ? html`<span class="tone-bad" title=${row.message}>${row.note}</span> ` : null}
      <a class="faint" href=${href("/session/:id", { id: row.session }, { call: row.id })}>
      ${row.title || `session ${shortId(row.session)}`}</a></span>`,
    value: (row) => row.target,
  },
  {
    key: "project",
    title: "Project",
    width: "9rem",
    hide: "narrow",
    cell: (row) => html`<span class="faint" title=${row.project}>${baseName(row.project)}</span>`,
    value: (row) => baseName(row.project),
  },
  {
    key: "duration_ms",
    title: "Duration",
    hint: "From the request to the result, without the known waits for permission",
    width: "6.5rem",
    align: "right",
    cell: (row) =>
      row.wait_ms
        ? html`<span title=${`waited ${duration(row.wait_ms)} more for permission`}>${duration(row.ran)}</span>`
        : duration(row.ran),
    value: (row) => row.ran,
  },
  {
    key: "requested",
    title: "Time",
    width: "10.5rem",
    newest: true,
    cell: (row) => html`<span class="faint">${day(row.start)}</span> <span class="mono">${clock(row.start)}</span>`,
    value: (row) => row.start?.getTime(),
  },
  { key: "tool", title: "Tool", hide: "always", cell: () => "", value: (row) => row.tool },
  {
    key: "message",
    title: "Error",
    hide: "always",
    cell: () => "",
    value: (row) => (row.unsuccessful ? row.error : null),
  },
  { key: "session", title: "Session", hide: "always", cell: () => "", value: (row) => row.title },
];

// If the user denied the call and said why, the reason follows a sentence of the client.
const denialReason = (message) =>
  /^The user doesn't want to proceed [^]*?\bthe user said:\s*([^]+)/.exec(message ?? "")?.[1];
const errorText = (row) =>
  firstLine(denialReason(row.message) || row.error_text || row.message) || kindName(row.error_kind);

// The text that most unsuccessful rows have, if at least two have it, and whether all of them do.
function commonText(rows) {
  const counts = new Map();
  for (const { error } of rows) counts.set(error, (counts.get(error) ?? 0) + 1);
  const [text, count] = [...counts].reduce((most, entry) => (entry[1] > most[1] ? entry : most), ["", 1]);
  return { text, isOnly: count === rows.length };
}

// In a group of errors, what most rows would repeat is shown once, above them.
const withoutCommon = (rows, common) =>
  rows.map((row) => (row.error === common.text ? { ...row, note: common.isOnly ? "" : "as above" } : row));

const phoneRow = (row, common) =>
  html`<a class="mono" href=${callHref(row)}><b>${row.tool ?? "?"}</b> ${subject(row)}
  </a>
  <${Facts} className="faint" items=${[
    html`<${StateBadge} state=${row.state} />`,
    dateTime(row.start),
    duration(row.ran),
    row.unsuccessful && row.error !== common?.text && html`<span class="tone-bad">${row.error.slice(0, 60)}</span>`,
  ]} />`;

// A table of the calls that the query selects, with filters. `group` lists the calls of one group of errors.
export function CallList({ query, setQuery, group, children }) {
  const asked = Object.fromEntries([...ASKED.map((key) => [key, query[key]]), ["group", group ?? query.group]]);
  const answer = useApi("calls", { ...asked, fields: FIELDS }, { live: true });
  const sessions = useApi("sessions", { fields: "id,title,first_prompt,project" });
  const names = useMemo(() => new Map((sessions.data ?? []).map((row) => [row.id, row])), [sessions.data]);
  const rows = useMemo(
    () =>
      (answer.data ?? []).map((row, n) => {
        const session = names.get(row.session);
        const unsuccessful = isUnsuccessful(row) || Boolean(group);
        const error = errorText(row);
        return {
          ...row,
          n,
          error,
          ran: row.duration_ms === null ? null : row.duration_ms - (row.wait_ms ?? 0), // without waiting for permission
          note: unsuccessful ? error : "",
          start: parseTime(row.requested ?? row.finished),
          unsuccessful,
          server: serverOf(row.tool),
          title: firstLine(session?.title || session?.first_prompt, 120),
          project: session?.project,
        };
      }),
    [answer.data, names, group],
  );
  const shown = useMemo(() => filterRows(rows, FACETS, query), [rows, choiceKey(FACETS, query)]);
  const common = useMemo(() => (group && rows.length > 1 ? commonText(rows) : null), [group, rows]);
  const listed = useMemo(() => (common?.text ? withoutCommon(shown, common) : shown), [shown, common]);
  const calls = shown.filter(({ state }) => state !== "orphan_result");
  const total = calls.reduce((sum, row) => sum + (row.ran ?? 0), 0);
  const bad = calls.filter(({ unsuccessful }) => unsuccessful).length;
  return html`<${Answer} of=${answer} what="calls">${() =>
    html`
    ${children?.({ shown, common: common?.text ?? "" })}
    ${
      children
        ? null
        : html`<div class="head"><h1>Calls</h1><${Facts} items=${[
            html`<span data-test="calls">${plural(calls.length, "call")}</span>`,
            html`<span data-test="unsuccessful" class=${bad ? "tone-bad" : ""}>${number(bad)} unsuccessful</span>`,
            total > 0 && html`<span title=${SUM_HINT}>${duration(total)} in calls</span>`,
          ]} /></div>`
    }
    <${Facets} rows=${rows} facets=${FACETS} query=${query} setQuery=${setQuery}>
      <${PeriodFilter} query=${query} setQuery=${setQuery} />
      <${SessionMark} query=${query} setQuery=${setQuery} names=${names} /><//>
    ${
      shown.length
        ? html`<${Table} label="Calls" rows=${listed} columns=${COLUMNS} sort=${query.sort ?? "-requested"}
          onSort=${(sort) => setQuery({ sort })}
        rowKey=${(row) => row.n} rowHref=${callHref} rowHeight=${46} rowClass=${() => "two-lines"}
          phone=${(row) => phoneRow(row, common)} />`
        : html`<${Empty}>
          ${answer.warnings[0] ?? "No call matches these filters."}<//>`
    }`}<//>`;
}

function SessionMark({ query, setQuery, names }) {
  if (!query.session) return null;
  const row = names.get(query.session);
  return html`<button type="button" class="mark" onClick=${() => setQuery({ session: null })}>
    Session: ${firstLine(row?.title || row?.first_prompt, 60) || shortId(query.session)} <span
      aria-hidden="true">✕</span><span class="sr-only">, remove</span></button>`;
}

export default function Calls({ query: address, setQuery, setTitle }) {
  const query = withPeriod(address);
  useEffect(() => setTitle("Calls"), []);
  return html`<section class="page fill calls"><${CallList} query=${query} setQuery=${setQuery} /></section>`;
}
