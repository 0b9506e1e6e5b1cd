// Sessions: all sessions as one sortable, filtered table; with `q`, what was found in them.
// Query: sort, since, until, mark (a session to compare), the facets; q, in, regex, case (search).
import { html, useEffect, useMemo, useRef } from "../lib.js";
import { useApi, useLive } from "../api.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Facts, LiveBadge, StateBadge, clientName, usageTokens } from "../components/badges.js";
import { Answer, Empty, Loading, Problem } from "../components/messages.js";
import { PeriodMark, midnight } from "../components/period.js";
import { ago, baseName, cost, dateTime, duration, firstLine, number, parseTime, plural, short, shortId, words } from "../components/format.js";
import { useKeys } from "../keys.js";
import { href, navigate } from "../router.js";

export const styles = ["views/sessions.css"];

const PERIODS = { today: 0, yesterday: 1, "7 days": 6, "30 days": 29, "90 days": 89 };
const PERIOD_NAMES = Object.keys(PERIODS);
const FACETS = [
  { key: "project", title: "Project", values: (row) => [row.project || "(none)"], label: (value) => baseName(value) || value },
  { key: "client", title: "Client", values: (row) => [row.dialect], label: clientName },
  { key: "model", title: "Model", values: (row) => row.models },
  { key: "tool", title: "Tool", values: (row) => row.toolNames },
  { key: "state", title: "State", values: (row) => row.stateNames, label: words },
  { key: "live", title: "Running", values: (row) => (row.live ? [row.live.status] : ["no"]) },
  { key: "period", title: "Period", values: (row) => row.periods, order: PERIOD_NAMES },
];

// Periods in local time that contain a time.
function periodsOf(time) {
  if (!time) return [];
  const today = midnight(Date.now());
  return Object.entries(PERIODS)
    .filter(([name, back]) => time >= midnight(today, back) && (name !== "yesterday" || time < today))
    .map(([name]) => name);
}

const sessionHref = (row) => href("/session/:id", { id: row.id });
const compareHref = (row, mark) => (mark && mark !== row.id ? href("/compare", {}, { a: mark, b: row.id }) : href("/sessions", {}, { mark: row.id }));

const columnsWith = (mark) => [
  { key: "title", title: "Session", cell: (row) => html`${row.live ? html`<${LiveBadge} status=${row.live.status} /> ` : null}<a href=${sessionHref(row)} class="title">${row.about || shortId(row.id)}</a>`, value: (row) => row.about.toLowerCase() },
  { key: "project", title: "Project", width: "10rem", hide: "phone", cell: (row) => html`<span title=${row.project}>${baseName(row.project)}</span>`, value: (row) => baseName(row.project) },
  { key: "client", title: "Client", width: "7rem", hide: "narrow", cell: (row) => clientName(row.dialect), value: (row) => row.dialect },
  { key: "ended", title: "Last active", width: "7.5rem", newest: true, cell: (row) => html`<span title=${dateTime(row.end)}>${ago(row.end)}</span>`, value: (row) => row.end?.getTime() },
  { key: "duration", title: "Duration", hint: "From the first to the last record, idle time included", width: "6.5rem", align: "right", hide: "phone", cell: (row) => duration(row.lasted), value: (row) => row.lasted },
  { key: "active", title: "Active", hint: "Time used by the model, tools, permission and hooks, as in toolspan time: without idle time and gaps", width: "6rem", align: "right", hide: "narrow", cell: (row) => duration(row.active), value: (row) => row.active },
  { key: "calls", title: "Calls", width: "5rem", align: "right", cell: (row) => number(row.calls), value: (row) => row.calls },
  { key: "wrong", title: "Failed", hint: "Calls that did not succeed: failed, denied, cancelled, interrupted and the like", width: "5rem", align: "right", cell: (row) => (row.wrong ? html`<a class="tone-bad" href=${href("/calls", {}, { session: row.id, failed: "yes" })}>${number(row.wrong)}</a>` : html`<span class="faint">0</span>`), value: (row) => row.wrong },
  { key: "agents", title: "Agents", width: "5rem", align: "right", hide: "narrow", cell: (row) => (row.agents ? number(row.agents) : ""), value: (row) => row.agents },
  { key: "tokens", title: "Tokens", width: "5.5rem", align: "right", hide: "narrow", cell: (row) => html`<span title=${number(row.total)}>${short(row.total)}</span>`, value: (row) => row.total },
  { key: "cost", title: "Cost", width: "5.5rem", align: "right", hide: "phone", cell: (row) => cost(row.cost), value: (row) => row.cost },
  { key: "compare", title: html`<span class="sr-only">Compare</span>`, width: "2.6rem", hide: "narrow", cell: (row) => html`<a class="compare-with" href=${compareHref(row, mark)} aria-label=${mark ? "Compare with this session" : "Compare this session"} title=${mark ? "Compare with this session" : "Compare with another session (c)"}>⇄</a>` },
];

const phoneRow = (row) => html`<a class="title" href=${sessionHref(row)}>${row.about || shortId(row.id)}</a>
  <${Facts} className="faint" items=${[row.live && html`<${LiveBadge} status=${row.live.status} />`, baseName(row.project), ago(row.end), plural(row.calls, "call"),
    row.wrong > 0 && html`<span class="tone-bad">${number(row.wrong)} failed</span>`, cost(row.cost)]} />`;

export default function Sessions({ query, setQuery, setTitle }) {
  useEffect(() => setTitle(query.q ? `${query.q}` : "Sessions"), [query.q]);
  return query.q ? html`<${Search} key=${query.q} query=${query} setQuery=${setQuery} />` : html`<${List} query=${query} setQuery=${setQuery} />`;
}

function useSessions() {
  const sessions = useApi("sessions", {}, { live: true });
  const usage = useApi("usage", { by: "session" }, { live: true });
  const time = useApi(usage.loading ? null : "time", { limit: 1, fields: "by_session" }, { live: true }); // the slowest last
  const { sessions: live } = useLive();
  const rows = useMemo(() => (sessions.data ? join(sessions.data, usage.data ?? [], time.data?.by_session ?? [], live ?? []) : []), [sessions.data, usage.data, time.data, live]);
  return { sessions, usage, rows };
}

function List({ query, setQuery }) {
  const { sessions, usage, rows } = useSessions();
  const { since, until, mark } = query;
  const active = useRef(null);
  const inPeriod = useMemo(() => {
    const [from, to] = [since ? new Date(since) : null, until ? new Date(until) : null];
    return from || to ? rows.filter((row) => row.end && (!from || row.end >= from) && (!to || row.start < to)) : rows;
  }, [rows, since, until]);
  const shown = useMemo(() => filterRows(inPeriod, FACETS, query), [inPeriod, choiceKey(FACETS, query)]);
  const isMixed = useMemo(() => new Set(rows.map(({ dialect }) => dialect)).size > 1, [rows]);
  const columns = useMemo(() => columnsWith(mark).filter(({ key }) => key !== "client" || isMixed), [mark, isMixed]); // else titles have the room
  const marked = mark ? rows.find(({ id }) => id === mark) : null;
  const failed = useMemo(() => sum(shown, "wrong"), [shown]);
  useKeys({ c: { label: "compare the row with another", run: () => active.current && navigate(compareHref(active.current, mark)) } });
  return html`<${Answer} of=${sessions} what="sessions">${() => html`<section class="page fill sessions">
    <div class="head"><h1>Sessions</h1><${Facts} items=${[
      html`<span data-test="count">${shown.length === rows.length ? plural(rows.length, "session") : `${number(shown.length)} of ${plural(rows.length, "session")}`}</span>`,
      plural(sum(shown, "calls"), "call"),
      html`<span class=${failed ? "tone-bad" : ""}>${number(failed)} failed</span>`,
      usage.data && html`<span data-test="tokens">${short(sum(shown, "total"))} tokens</span>`,
      usage.data && cost(sum(shown, "cost")),
    ]} /></div>
    ${mark ? html`<p class="banner" role="status">Compare <b>${marked?.about || shortId(mark)}</b> with: choose ⇄ of another session. <button type="button" onClick=${() => setQuery({ mark: null })}>Cancel</button></p>` : null}
    <${Facets} rows=${inPeriod} facets=${FACETS} query=${query} setQuery=${setQuery}><${PeriodMark} query=${query} setQuery=${setQuery} /><//>
    ${shown.length ? html`<${Table} label="Sessions" rows=${shown} columns=${columns} sort=${query.sort ?? "-ended"}
        onSort=${(sort) => setQuery({ sort })} rowKey=${(row) => row.id} rowHref=${sessionHref} rowClass=${(row) => (row.id === mark ? "marked" : "")}
        onActive=${(_, row) => { active.current = row; }} phone=${phoneRow} />`
      : html`<${Empty}>${rows.length ? "No session matches these filters." : "There are no sessions yet."}<//>`}
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
      ...row, start, end,
      about: firstLine(row.title || row.first_prompt),
      lasted: row.started && row.ended ? end - start : null,
      active: active.get(row.id) ?? null,
      total: used.has(row.id) ? usageTokens(used.get(row.id)) : null,
      cost: used.get(row.id)?.cost_usd ?? null,
      live: status.get(row.id) ?? null,
      periods: periodsOf(end),
      toolNames: Object.keys(row.tools),
      stateNames: Object.keys(row.states),
    };
  });
}

// Search

const MAX_HITS = 1000;
const PLACES = [["all", "Everywhere"], ["message", "Messages"], ["input", "Inputs"], ["result", "Results"]];
const SIDES = { toolUseResult: "result data" };
const VOICES = { prompt: "prompt", text: "reply", thinking: "thinking" };

const HIT_FACETS = [
  { key: "project", title: "Project", values: (row) => [row.cwd || "(none)"], label: (value) => baseName(value) || value },
  { key: "tool", title: "Tool", values: (row) => (row.tool ? [row.tool] : []) },
  { key: "state", title: "State", values: (row) => (row.state ? [row.state] : []), label: words },
  { key: "kind", title: "Kind", values: (row) => [row.kind] },
  { key: "period", title: "Period", values: (row) => row.periods, order: PERIOD_NAMES },
];

// The session, at the hit.
export function hitHref(row) {
  const place = row.call ? { call: row.call } : { line: row.line, of: row.agent };
  return href("/session/:id", { id: row.session }, { ...place, q: row.q });
}

const hitCell = (row, room = 200) => html`<span class="hit-head">${row.tool ? html`<${StateBadge} state=${row.state} text=${false} /> <b>${row.tool}</b> ` : html`<b>${VOICES[row.voice] ?? row.voice ?? "message"}</b> `}<span class="faint">${row.sides.filter((side) => side !== "message").map((side) => SIDES[side] ?? side).join(", ")}${row.target ? ` ${firstLine(row.target, 100)}` : ""}</span></span>
  <a class="snippet mono" href=${hitHref(row)}>${flat(row.snippet.before).slice(-room)}<mark>${flat(row.snippet.match)}</mark>${flat(row.snippet.after)}</a>`;
const flat = (text) => text.replace(/\s+/g, " ");

const HIT_COLUMNS = [
  { key: "hit", title: "Found", cell: (row) => hitCell(row) },
  { key: "session", title: "Session", width: "24%", hide: "phone", cell: (row) => html`<span class="hit-head">${row.title || shortId(row.session)}</span><span class="faint hit-project">${baseName(row.cwd)}${row.agent ? " · agent" : ""}</span>`, value: (row) => row.title },
  { key: "at", title: "When", width: "8rem", newest: true, cell: (row) => html`<span title=${dateTime(row.time)}>${ago(row.time)}</span>`, value: (row) => row.time?.getTime() },
];

function Search({ query, setQuery }) {
  const options = { q: query.q, in: query.in, regex: query.regex, limit: MAX_HITS, ...(query.case ? { "case-sensitive": true } : {}) };
  const answer = useApi("search", options);
  const sessions = useApi("sessions", { fields: "id,session_ids,title,first_prompt" });
  const titles = useMemo(() => new Map((sessions.data ?? []).flatMap((row) => [row.id, ...row.session_ids].map((id) => [id, firstLine(row.title || row.first_prompt)]))), [sessions.data]);
  const rows = useMemo(() => (answer.data ?? []).map((row, n) => {
    const time = parseTime(row.at);
    return { ...row, n, time, q: query.q, title: titles.get(row.session), periods: periodsOf(time) };
  }), [answer.data, titles]);
  const shown = useMemo(() => filterRows(rows, HIT_FACETS, query), [rows, choiceKey(HIT_FACETS, query)]);
  const count = answer.data ? (shown.length === rows.length ? (rows.length >= MAX_HITS ? `the newest ${number(rows.length)} matches` : plural(rows.length, "match")) : `${number(shown.length)} of ${number(rows.length)} matches`) : "searching …";
  return html`<section class="page fill sessions search-results">
    <div class="head"><h1>Search: ${query.q}</h1><${Facts} items=${[html`<span data-test="count" role="status">${count}</span>`, answer.data && plural(new Set(shown.map(({ session }) => session)).size, "session")]} /></div>
    <${Facets} rows=${rows} facets=${HIT_FACETS} query=${query} setQuery=${setQuery}>
      <div class="segments" role="group" aria-label="Search in">${PLACES.map(([key, title]) => html`<button key=${key} type="button" aria-pressed=${(query.in ?? "all") === key} onClick=${() => setQuery({ in: key === "all" ? null : key })}>${title}</button>`)}</div>
      <label class="check"><input type="checkbox" checked=${Boolean(query.case)} onChange=${(event) => setQuery({ case: event.target.checked ? "1" : null })} /> Match case</label>
      <label class="check"><input type="checkbox" checked=${Boolean(query.regex)} onChange=${(event) => setQuery({ regex: event.target.checked ? "1" : null })} /> Regular expression</label>
    <//>
    ${answer.error ? html`<${Problem} error=${answer.error} />` : !answer.data ? html`<${Loading} what="matches" />`
      : shown.length ? html`<${Table} label="Matches" rows=${shown} columns=${HIT_COLUMNS} sort=${query.sort} onSort=${(sort) => setQuery({ sort })} rowKey=${(row) => row.n} rowHref=${hitHref} rowHeight=${54} rowClass=${() => "hit"} phone=${(row) => hitCell(row, 20)} />`
      : html`<${Empty}>Nothing contains “${query.q}”. <a href="/sessions">All sessions</a><//>`}
  </section>`;
}
