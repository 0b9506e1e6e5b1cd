// Search: what was found in the sessions, as one filtered table. The sessions view shows it if there is a `q`.
// Query: q, in, regex, case, sort, the facets.
import { html, useMemo } from "../lib.js";
import { useApi } from "../api.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Facts, StateBadge } from "../components/badges.js";
import { Empty, Loading, Problem } from "../components/messages.js";
import { PERIOD_NAMES, periodsOf } from "../components/period.js";
import {
  ago,
  baseName,
  dateTime,
  firstLine,
  number,
  oneLine,
  parseTime,
  plural,
  shortId,
  words,
} from "../components/format.js";
import { href } from "../router.js";

const MAX_HITS = 1000;
const PLACES = [
  ["all", "Everywhere"],
  ["message", "Messages"],
  ["input", "Inputs"],
  ["result", "Results"],
];
const SIDES = { toolUseResult: "result data" };
const VOICES = { prompt: "prompt", text: "reply", thinking: "thinking" };

const HIT_FACETS = [
  {
    key: "project",
    title: "Project",
    values: (row) => [row.cwd || "(none)"],
    label: (value) => baseName(value) || value,
  },
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

const hitCell = (row, room = 200) =>
  html`<span class="hit-head">
  ${
    row.tool
      ? html`<${StateBadge} state=${row.state} text=${false} /> <b>${row.tool}</b> `
      : html`<b>${VOICES[row.voice] ?? row.voice ?? "message"}</b> `
  }<span class="faint">
  ${row.sides
    .filter((side) => side !== "message")
    .map((side) => SIDES[side] ?? side)
    .join(", ")}
  ${row.target ? ` ${oneLine(row.target, 100)}` : ""}</span></span>
  <a class="snippet mono" href=${hitHref(row)}>${flat(row.snippet.before).slice(-room)}<mark>${flat(row.snippet.match)}
    </mark>${flat(row.snippet.after)}</a>`;
const flat = (text) => text.replace(/\s+/g, " ");

const HIT_COLUMNS = [
  { key: "hit", title: "Found", cell: (row) => hitCell(row) },
  {
    key: "session",
    title: "Session",
    width: "24%",
    hide: "phone",
    cell: (row) =>
      html`<span class="hit-head">${row.title || shortId(row.session)}</span>
      <span class="faint hit-project">${baseName(row.cwd)}${row.agent ? " · agent" : ""}</span>`,
    value: (row) => row.title,
  },
  {
    key: "at",
    title: "When",
    width: "8rem",
    newest: true,
    cell: (row) => html`<span title=${dateTime(row.time)}>${ago(row.time)}</span>`,
    value: (row) => row.time?.getTime(),
  },
];

export function Search({ query, setQuery }) {
  const options = {
    q: query.q,
    in: query.in,
    regex: query.regex,
    limit: MAX_HITS,
    ...(query.case ? { "case-sensitive": true } : {}),
  };
  const answer = useApi("search", options);
  const sessions = useApi("sessions", { fields: "id,session_ids,title,first_prompt" });
  const titles = useMemo(
    () =>
      new Map(
        (sessions.data ?? []).flatMap((row) =>
          [row.id, ...row.session_ids].map((id) => [id, firstLine(row.title || row.first_prompt)]),
        ),
      ),
    [sessions.data],
  );
  const rows = useMemo(
    () =>
      (answer.data ?? []).map((row, n) => {
        const time = parseTime(row.at);
        return { ...row, n, time, q: query.q, title: titles.get(row.session), periods: periodsOf(time) };
      }),
    [answer.data, titles],
  );
  const shown = useMemo(() => filterRows(rows, HIT_FACETS, query), [rows, choiceKey(HIT_FACETS, query)]);
  const count = answer.data
    ? shown.length === rows.length
      ? rows.length >= MAX_HITS
        ? `the newest ${number(rows.length)} matches`
        : plural(rows.length, "match")
      : `${number(shown.length)} of ${number(rows.length)} matches`
    : "searching …";
  return html`<section class="page fill sessions search-results">
    <div class="head"><h1>Search: ${query.q}</h1><${Facts}
      items=${[
        html`<span data-test="count" role="status">${count}</span>`,
        answer.data && plural(new Set(shown.map(({ session }) => session)).size, "session"),
      ]} /></div>
    <${Facets} rows=${rows} facets=${HIT_FACETS} query=${query} setQuery=${setQuery}>
      <div class="segments" role="group" aria-label="Search in">
        ${PLACES.map(
          ([key, title]) =>
            html`<button key=${key} type="button" aria-pressed=${(query.in ?? "all") === key}
              onClick=${() => setQuery({ in: key === "all" ? null : key })}>${title}</button>`,
        )}</div>
      <label class="check"><input type="checkbox" checked=${Boolean(query.case)}
        onChange=${(event) => setQuery({ case: event.target.checked ? "1" : null })} /> Match case</label>
      <label class="check"><input type="checkbox" checked=${Boolean(query.regex)}
        onChange=${(event) => setQuery({ regex: event.target.checked ? "1" : null })} /> Regular expression</label>
    <//>
    ${
      answer.error
        ? html`<${Problem} error=${answer.error} />`
        : !answer.data
          ? html`<${Loading} what="matches" />`
          : shown.length
            ? html`<${Table} label="Matches" rows=${shown} columns=${HIT_COLUMNS} sort=${query.sort}
          onSort=${(sort) => setQuery({ sort })} rowKey=${(row) => row.n} rowHref=${hitHref} rowHeight=${54}
          rowClass=${() => "hit"} phone=${(row) => hitCell(row, 20)} />`
            : html`<${Empty}>Nothing contains “${query.q}”. <a href="/sessions">All sessions</a><//>`
    }
  </section>`;
}
