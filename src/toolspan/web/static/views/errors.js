// Errors: unsuccessful calls in groups by cause, as issues that can be muted or marked as fixed.
// Query: since, until, group (one group with all its calls), show (open, muted, fixed, all), recovered (yes, no), sort,
// the facets.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { post, useApi } from "../api.js";
import { Bars, Sparkline } from "../components/bars.js";
import { Badge, Facts } from "../components/badges.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Answer, Empty, Problem } from "../components/messages.js";
import { DAY, PeriodFilter, midnight, parseDay, withPeriod } from "../components/period.js";
import { Table } from "../components/table.js";
import { CallList } from "./calls.js";
import { ago, dateTime, day, firstLine, number, parseTime, plural, toolName } from "../components/format.js";
import { kindName, recoveryName } from "../components/words.js";
import { useKeys } from "../keys.js";
import { href, navigate } from "../router.js";

export const styles = ["views/errors.css"];

const SHOW = [
  ["open", "Open"],
  ["muted", "Muted"],
  ["fixed", "Fixed"],
  ["all", "All"],
];
const RECOVERED = [
  [null, "Recovered or not"],
  ["no", "Not recovered"],
  ["yes", "Recovered"],
];
const TRENDS = { new: "warn", rising: "bad", falling: "good", steady: "muted", gone: "good" };
const [SHORT_SPARK, SPARK_BINS] = [7, 30];
const FACETS = [
  { key: "kind", title: "Kind", values: (row) => [row.kind], label: kindName },
  { key: "tool", title: "Tool", values: (row) => [row.tool] },
  { key: "program", title: "Program", values: (row) => (row.program ? [row.program] : []) },
  { key: "trend", title: "Trend", values: (row) => [row.trend] },
];

export default function Errors({ query: address, setQuery, setTitle }) {
  const query = withPeriod(address);
  const errors = useApi(
    "errors",
    { since: query.since, until: query.until, recovered: query.group ? null : query.recovered },
    { live: true },
  );
  const muted = useApi("muted");
  const [marks, setMarks] = useState(null);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    if (muted.data) setMarks(muted.data);
  }, [muted.data]);
  const groups = useMemo(() => addMarks(errors.data ?? [], marks?.groups ?? {}), [errors.data, marks]);
  const mark = (group, status) =>
    post(`muted/${encodeURIComponent(group.id)}`, { status, label: `${group.who}: ${kindName(group.kind)}` }).then(
      (data) => {
        setMarks(data);
        setProblem(null);
      },
      setProblem,
    );
  const group = query.group ? groups.find(({ id }) => id === query.group) : null;
  const title = group ? `${group.who} ${kindName(group.kind)}` : "Errors";
  useEffect(() => setTitle(title), [title]);
  const warning = problem?.message ?? marks?.problem;
  const props = {
    query,
    setQuery,
    mark,
    warning: warning ? html`<p class="warning" role="alert">${warning}</p>` : null,
  };
  if (query.group) {
    return html`<${Answer} of=${errors} what="the error">
      ${() =>
        group
          ? html`<${Group} key=${group.id} group=${group} ...${props} />`
          : html`<${Problem} error=${{ status: 404, message: `There is no group ${query.group} in this period.` }} />`}
        <//>`;
  }
  return html`<${Answer} of=${errors} what="errors">${() => html`<${List} groups=${groups} ...${props} />`}<//>`;
}

// A group that is fixed is open again when it has calls after that time.
function addMarks(groups, marks) {
  const to = groups.reduce((latest, { last }) => (last && last > latest ? last : latest), "");
  const from = groups.reduce((earliest, { first }) => (first && first < earliest ? first : earliest), to);
  const start = midnight(from ? new Date(from) : Date.now());
  const days = Math.max(SHORT_SPARK, Math.round((midnight(to ? new Date(to) : Date.now()) - start) / DAY) + 1);
  const bins = Math.min(SPARK_BINS, days);
  return groups.map((group) => {
    const found = marks[group.id] ?? null;
    const returned = found?.status === "fixed" && group.last && new Date(group.last) > new Date(found.since);
    const values = Array(bins).fill(0);
    for (const [text, count] of Object.entries(group.per_day)) {
      const passed = Math.round((parseDay(text) - start) / DAY);
      values[Math.max(0, Math.min(bins - 1, Math.floor((passed / days) * bins)))] += count;
    }
    return {
      ...group,
      mark: found,
      returned,
      status: !found || returned ? "open" : found.status,
      values,
      who: group.program || toolName(group.tool),
      firstTime: parseTime(group.first),
      lastTime: parseTime(group.last),
    };
  });
}

const groupHref = (row, query) => href("/errors", {}, { group: row.id, since: query.since, until: query.until });
const recovery = (row) => (row.recovered === null ? "" : `${Math.round((row.recovered / row.count) * 100)}%`);

const columnsWith = (query) => [
  {
    key: "cause",
    title: "Cause",
    cell: (row) =>
      html`<a class="cause" href=${groupHref(row, query)}><b>${row.who}
      </b> ${kindName(row.kind)}</a> <${Marks} row=${row} /><span class="text mono">
      ${firstLine(row.message || row.example.message) || row.cause}</span>`,
    value: (row) => `${row.who} ${row.kind}`,
  },
  {
    key: "trend",
    title: "Trend",
    width: "9.5rem",
    hide: "phone",
    cell: (row) => html`<${Sparkline} values=${row.values} label=${`${row.count} calls, ${row.trend}`} />`,
    value: (row) => row.trend,
  },
  {
    key: "count",
    title: "Calls",
    width: "5rem",
    align: "right",
    cell: (row) => html`<b>${number(row.count)}</b>`,
    value: (row) => row.count,
  },
  {
    key: "sessions",
    title: "Sessions",
    width: "6rem",
    align: "right",
    hide: "phone",
    cell: (row) => number(row.sessions),
    value: (row) => row.sessions,
  },
  {
    key: "recovered",
    title: "Recovered",
    width: "7rem",
    align: "right",
    hide: "phone",
    cell: (row) =>
      html`<span title=${`${row.recovered} of ${row.count} were recovered by later calls`}>${recovery(row)}
      </span>`,
    value: (row) => row.recovered / row.count,
  },
  {
    key: "first",
    title: "First seen",
    width: "7rem",
    newest: true,
    hide: "narrow",
    cell: (row) => html`<span title=${dateTime(row.firstTime)}>${ago(row.firstTime)}</span>`,
    value: (row) => row.first,
  },
  {
    key: "last",
    title: "Last seen",
    width: "7rem",
    newest: true,
    cell: (row) => html`<span title=${dateTime(row.lastTime)}>${ago(row.lastTime)}</span>`,
    value: (row) => row.last,
  },
];

function Marks({ row }) {
  if (row.returned)
    return html`<${Badge} tone="bad"
      title=${`marked as fixed on ${dateTime(parseTime(row.mark.since))}`}>came back<//>`;
  if (row.mark) return html`<${Badge} tone=${row.mark.status === "fixed" ? "good" : "muted"}>${row.mark.status}<//>`;
  return row.trend === "steady" ? null : html`<${Badge} tone=${TRENDS[row.trend] ?? "muted"}>${row.trend}<//>`;
}

const phoneRow = (row, query) =>
  html`<a class="cause" href=${groupHref(row, query)}><b>${row.who}
  </b> ${kindName(row.kind)}</a>
  <${Facts} className="faint" items=${[
    html`<span class="tone-bad">${plural(row.count, "call")}</span>`,
    plural(row.sessions, "session"),
    ago(row.lastTime),
  ]} />`;

function List({ groups, query, setQuery, warning }) {
  const show = query.show ?? "open";
  const causes = useMemo(() => groups.filter(({ kind }) => kind !== "nothing_found"), [groups]);
  const nothing = groups.filter(({ kind }) => kind === "nothing_found").reduce((sum, { count }) => sum + count, 0);
  const visible = useMemo(
    () => (show === "all" ? causes : causes.filter(({ status }) => status === show)),
    [causes, show],
  );
  const shown = useMemo(() => filterRows(visible, FACETS, query), [visible, choiceKey(FACETS, query)]);
  const columns = useMemo(() => columnsWith(query), [query.since, query.until]);
  const unsuccessful = shown.filter(({ kind }) => kind !== "orphan_result").reduce((sum, { count }) => sum + count, 0);
  const orphans = shown.filter(({ kind }) => kind === "orphan_result").reduce((sum, { count }) => sum + count, 0);
  const later = shown.reduce((sum, { background }) => sum + background, 0);
  const counts = (name) => (name === "all" ? causes.length : causes.filter(({ status }) => status === name).length);
  return html`<section class="page fill errors">
    <div class="head"><h1>Errors</h1><${Facts} items=${[
      html`<span data-test="count">${plural(shown.length, "cause")}
          </span>`,
      html`<span class="tone-bad" data-test="unsuccessful">${plural(unsuccessful, "unsuccessful call")}</span>`,
      later > 0 &&
        html`<span title="The call itself succeeded">
        ${number(later)} of them failed later, in the background</span>`,
      orphans > 0 &&
        html`<span title="Their requests are in another file, or lost">
        ${plural(orphans, "result")} without a call</span>`,
      `${number(shown.reduce((sum, { recovered }) => sum + (recovered ?? 0), 0))} recovered by later calls`,
      nothing > 0 &&
        html`<a href=${href("/calls", {}, { error: "nothing_found", since: query.since, until: query.until })}>
        ${plural(nothing, "search")} found nothing</a>`,
      html`<a href=${href("/lists", {}, { about: "failures", since: query.since, until: query.until })}>
        by program, project,
        model …</a>`,
    ]} /></div>
    ${warning}
    <${Facets} rows=${visible} facets=${FACETS} query=${query} setQuery=${setQuery}>
      <div class="segments" role="group" aria-label="Show">
        ${SHOW.map(
          ([key, title]) =>
            html`<button key=${key} type="button" aria-pressed=${show === key}
              onClick=${() => setQuery({ show: key === "open" ? null : key })}>${title} <span class="count">
            ${number(counts(key))}</span></button>`,
        )}</div>
      <div class="segments" role="group" aria-label="Recovered by later calls">
        ${RECOVERED.map(
          ([key, title]) =>
            html`<button key=${key} type="button"
              aria-pressed=${(query.recovered ?? null) === key}
              onClick=${() => setQuery({ recovered: key })}>${title}</button>`,
        )}</div>
      <${PeriodFilter} query=${query} setQuery=${setQuery} /><//>
    ${
      shown.length
        ? html`<${Table} label="Errors" rows=${shown} columns=${columns} sort=${query.sort ?? "-count"}
          onSort=${(sort) => setQuery({ sort })}
      rowKey=${(row) => row.id} rowHref=${(row) => groupHref(row, query)} rowHeight=${54} rowClass=${() => "issue"}
        phone=${(row) => phoneRow(row, query)} />`
        : html`<${Empty}>${causes.length ? "No cause matches these filters." : "All calls succeeded."}<//>`
    }
  </section>`;
}

function Group({ group, query, setQuery, mark, warning }) {
  const back = () => navigate(href("/errors", {}, { since: query.since, until: query.until }));
  useKeys({
    m: { label: "mute or unmute", run: () => mark(group, group.mark?.status === "muted" ? null : "muted") },
    f: {
      label: "mark as fixed, or not",
      run: () => mark(group, group.mark?.status === "fixed" && !group.returned ? null : "fixed"),
    },
    u: { label: "back to all errors", run: back },
  });
  const bars = useMemo(() => dayBars(group), [group]);
  const fixed = group.mark?.status === "fixed";
  return html`<section class="page fill errors one"><${CallList} query=${query} setQuery=${setQuery} group=${group.id}>
    ${({ shown, common }) =>
      html`
    <p class="crumbs"><a href=${href("/errors", {}, { since: query.since, until: query.until })}>← All errors</a></p>
    <div class="head"><h1>${group.who}: ${kindName(group.kind)}</h1><${Marks} row=${group} />
      <span class="actions">
        ${
          group.mark
            ? html`<button type="button" data-test="unmark" onClick=${() => mark(group, null)}>
            ${fixed ? "Not fixed" : "Unmute"}</button>`
            : null
        }
        ${
          group.mark?.status === "muted"
            ? null
            : html`<button type="button" data-test="mute"
              title="Hide this cause (m)" onClick=${() => mark(group, "muted")}>Mute</button>`
        }
        ${
          fixed && !group.returned
            ? null
            : html`<button type="button" data-test="fix"
              title="Hide this cause until it occurs again (f)"
              onClick=${() => mark(group, "fixed")}>Fixed now</button>`
        }
      </span></div>
    ${warning}
    ${group.message ? html`<p class="mono message">${firstLine(group.message, 400)}</p>` : null}
    ${
      common && common !== firstLine(group.message) && common !== kindName(group.kind)
        ? html`<p class="mono message" data-test="common">${common}</p>`
        : null
    }
    <div class="about">
      <div class="card"><dl>
        <div><dt>Calls</dt><dd><b data-test="group-count">${number(group.count)}</b>
          ${shown.length !== group.count ? html` <span class="faint">${number(shown.length)} shown</span>` : null}</dd>
          </div>
        <div><dt>Sessions</dt><dd>${number(group.sessions)}</dd></div>
        <div><dt>First seen</dt><dd title=${ago(group.firstTime)}>${dateTime(group.firstTime)}</dd></div>
        <div><dt>Last seen</dt><dd title=${ago(group.lastTime)}>${dateTime(group.lastTime)}</dd></div>
        ${fixed ? html`<div><dt>Fixed since</dt><dd>${dateTime(parseTime(group.mark.since))}</dd></div>` : null}</dl>
          </div>
      <div class="card"><dl>
        <div><dt>Cause</dt><dd>${group.cause}</dd></div>
        ${group.solution ? html`<div><dt>What to do</dt><dd>${group.solution}</dd></div>` : null}
        <div><dt>Recovered</dt><dd>${number(group.recovered)} of ${number(group.count)}
          ${
            Object.keys(group.recovered_by).length
              ? html` <span class="faint">
            ${Object.entries(group.recovered_by)
              .map(([name, count]) => `${recoveryName(name)} ${number(count)}`)
              .join(", ")}
            </span>`
              : null
          }</dd></div>
        ${
          group.background
            ? html`<div><dt>Background</dt><dd>${number(group.background)} failed later</dd></div>`
            : null
        }</dl></div>
      <div class="card trend"><${Bars} bars=${bars} format=${(value) => (Number.isInteger(value) ? number(value) : "")}
        label="Unsuccessful calls per day" labels=${
          bars.length > 1
            ? [day(new Date(bars[0].key)), day(new Date(bars.at(-1).key))]
            : [day(new Date(bars[0]?.key ?? 0))]
        } /></div>
    </div>`}<//></section>`;
}

// A bar per day from the first to the last call, or per week if that is long ago.
function dayBars(group) {
  const entries = Object.entries(group.per_day)
    .map(([text, count]) => [parseDay(text), count])
    .sort(([one], [other]) => one - other);
  if (!entries.length) return [];
  const step = (entries.at(-1)[0] - entries[0][0]) / DAY > 60 ? 7 : 1;
  const bars = [];
  let n = 0;
  for (let start = entries[0][0]; start <= entries.at(-1)[0]; start = midnight(start, -step)) {
    const until = midnight(start, -step);
    let count = 0;
    for (; n < entries.length && entries[n][0] < until; n += 1) count += entries[n][1];
    bars.push({
      key: Number(start),
      title: `${day(start)}: ${plural(count, "call")}`,
      parts: [{ value: count, tone: "bad" }],
      href: href("/errors", {}, { group: group.id, since: start.toISOString(), until: until.toISOString() }),
    });
  }
  return bars;
}
