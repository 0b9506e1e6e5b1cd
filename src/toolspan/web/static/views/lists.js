// Lists: what was asked, what was refused and why, what hooks did, risky commands, subagents, unsuccessful calls and
// disk space by a grouping. Query: about, by (the grouping), days, since, until, sort, the facets.
import { html, useEffect, useMemo } from "../lib.js";
import { useApi } from "../api.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Facts, StateBadge, clientName } from "../components/badges.js";
import { Answer, Empty } from "../components/messages.js";
import { PeriodFilter, midnight, parseDay, withPeriod } from "../components/period.js";
import {
  baseName,
  bytes,
  cost,
  dateTime,
  duration,
  firstLine,
  number,
  oneLine,
  parseTime,
  percent,
  plural,
  shortId,
  words,
} from "../components/format.js";
import { href } from "../router.js";

const TEXT = 600;
const project = {
  key: "in",
  title: "Project",
  values: (row) => [row.project || "(none)"],
  label: (value) => baseName(value) || value,
};
const callHref = (row, call) => href("/call/:id", { id: call }, { session: row.session });
const when = (field) => ({
  key: "at",
  title: "Time",
  width: "11rem",
  newest: true,
  cell: (row) => html`<span class="mono">${dateTime(parseTime(row[field]))}</span>`,
  value: (row) => row[field],
});
const count = (key, title, hide) => ({
  key,
  title,
  width: "6.5rem",
  align: "right",
  hide,
  cell: (row) => number(row[key]),
  value: (row) => row[key],
});
const time = (key, title, hide) => ({
  key,
  title,
  width: "6.5rem",
  align: "right",
  hide,
  cell: (row) => duration(row[key]),
  value: (row) => row[key],
});
const size = (key, title, hide) => ({ ...count(key, title, hide), cell: (row) => bytes(row[key]) });
const NAMES = {
  project: (row) => baseName(row.name),
  client: (row) => clientName(row.name),
  kind: (row) => words(row.name),
};
const groupName = (row) => firstLine(row.title, TEXT) || NAMES[row.by]?.(row) || row.name || "(none)";
const two = (key, title, first, second, value) => ({
  key,
  title,
  cell: (row) =>
    html`<span class="first-line">${first(row)}</span><span class="second-line faint">
      <span>${second(row)}</span></span>`,
  value,
});

const LISTS = {
  prompts: {
    title: "Prompts",
    noun: "prompt",
    hint: "What you asked",
    route: "prompts",
    sort: "-at",
    facets: [project],
    link: (row) => href("/session/:id", { id: row.session }, { line: row.line }),
    columns: [
      two(
        "text",
        "Prompt",
        (row) => html`<a href=${LISTS.prompts.link(row)}>${firstLine(row.text, TEXT)}</a>`,
        (row) => [row.title !== firstLine(row.text) && row.title, baseName(row.project)].filter(Boolean).join(" · "),
        (row) => row.text,
      ),
      count("calls", "Calls"),
      count("unsuccessful", "Unsuccessful", "narrow"),
      time("duration_ms", "Until its end", "narrow"),
      when("at"),
    ],
  },
  denials: {
    title: "Denials",
    noun: "denial",
    hint: "What was refused, and what you said",
    route: "denials",
    query: { every: true },
    sort: "-at",
    facets: [project, { key: "by", title: "By", values: (row) => [row.by], label: words }],
    link: (row) => callHref(row, row.call),
    columns: [
      two(
        "target",
        "Call",
        (row) =>
          html`<b>${row.tool}</b> <a class="mono" href=${callHref(row, row.call)}>
          ${oneLine(row.target, TEXT) || shortId(row.call)}</a>`,
        (row) => firstLine(row.reason || row.next_prompt, TEXT) || "no reason given",
        (row) => row.target,
      ),
      { key: "by", title: "By", width: "8rem", cell: (row) => words(row.by), value: (row) => row.by },
      when("at"),
    ],
  },
  hooks: {
    title: "Hooks",
    noun: "hook",
    hint: "What each hook did, slow ones first",
    route: "hooks",
    sort: "-total_ms",
    facets: [{ key: "point", title: "Point", values: (row) => [row.point] }],
    link: (row) => (row.slowest?.call ? callHref(row.slowest, row.slowest.call) : null),
    columns: [
      two(
        "command",
        "Hook",
        (row) => html`<span class="mono">${oneLine(row.command, TEXT) || row.names[0] || row.point}</span>`,
        (row) => [row.point, row.objection && firstLine(row.objection, TEXT)].filter(Boolean).join(" · "),
        (row) => row.command,
      ),
      count("runs", "Runs"),
      count("blocked", "Blocked"),
      count("failed", "Failed", "narrow"),
      time("median_ms", "Median", "narrow"),
      time("longest_ms", "Longest", "phone"),
      time("total_ms", "Total"),
    ],
  },
  risky: {
    title: "Risky commands",
    noun: "command",
    hint: "Removals, force pushes, uploads, credentials and production systems",
    route: "risky",
    sort: "-at",
    facets: [
      { key: "risk", title: "Risk", values: (row) => [row.risk], label: words },
      { key: "ran", title: "Ran", values: (row) => [row.ran ? "yes" : "no"] },
      project,
    ],
    link: (row) => callHref(row, row.id),
    columns: [
      {
        key: "state",
        title: html`<span class="sr-only">State</span>`,
        width: "2.4rem",
        cell: (row) => html`<${StateBadge} state=${row.state} text=${false} />`,
        value: (row) => row.state,
      },
      two(
        "command",
        "Command",
        (row) =>
          html`<a class="mono" href=${callHref(row, row.id)}>
          ${oneLine(row.part || row.command, TEXT)}</a>`,
        (row) => `${row.reason}${row.prompt ? ` · asked: ${firstLine(row.prompt, TEXT)}` : ""}`,
        (row) => row.command,
      ),
      { key: "risk", title: "Risk", width: "8rem", cell: (row) => words(row.risk), value: (row) => row.risk },
      when("requested"),
    ],
  },
  agents: {
    title: "Subagents",
    noun: "subagent",
    hint: "Each with its type, prompt and cost",
    route: "agents",
    sort: "",
    facets: [{ key: "type", title: "Type", values: (row) => [row.type ?? "(none)"] }, project],
    link: (row) => href("/session/:id", { id: row.session }, { call: row.call ?? "" }),
    columns: [
      two(
        "name",
        "Subagent",
        (row) =>
          html`<span class=${`depth-${Math.min(row.depth, 4)}`}>
          ${row.state ? html`<${StateBadge} state=${row.state} text=${false} /> ` : null}
          <a href=${LISTS.agents.link(row)}>${firstLine(row.name || row.prompt, TEXT) || shortId(row.id)}</a></span>`,
        (row) =>
          html`<span class=${`depth-${Math.min(row.depth, 4)}`}>
          ${[row.type, firstLine(row.prompt, TEXT)].filter(Boolean).join(" · ")}</span>`,
        (row) => row.name,
      ),
      count("calls", "Calls"),
      count("unsuccessful", "Unsuccessful", "narrow"),
      {
        key: "cost",
        title: "Cost",
        width: "6rem",
        align: "right",
        cell: (row) => cost(row.cost_usd),
        value: (row) => row.cost_usd,
      },
      time("duration_ms", "Duration"),
      when("started"),
    ],
  },
  failures: {
    title: "Failures",
    noun: "row",
    hint: "Unsuccessful calls, with those that failed later, in the background",
    route: "errors",
    groupings: ["program", "tool", "kind", "client", "client-version", "model", "project", "session", "day"],
    sort: "-unsuccessful",
    facets: [],
    link: failuresHref,
    columns: [
      two(
        "name",
        "Name",
        (row) => html`<a href=${failuresHref(row)} title=${row.name}>${groupName(row)}</a>`,
        (row) => firstLine(row.top_message, TEXT),
        (row) => row.name,
      ),
      count("unsuccessful", "Unsuccessful"),
      count("calls", "Calls", "phone"),
      { ...count("share", "Share"), cell: (row) => (row.share === null ? "" : percent(row.share, 1)) },
      count("recovered", "Recovered", "narrow"),
      count("causes", "Causes", "narrow"),
      time("lost_ms", "Time lost"),
    ],
  },
  disk: {
    title: "Disk space",
    noun: "row",
    hint: "Sizes and ages of sessions, with their subagents and side files",
    route: "disk",
    groupings: ["project", "client", "age", "session"],
    sort: "-bytes",
    facets: [],
    link: diskHref,
    columns: [
      two(
        "name",
        "Name",
        (row) => html`<a href=${diskHref(row) ?? undefined} title=${row.name}>${groupName(row)}</a>`,
        (row) => row.name,
        (row) => row.name,
      ),
      count("sessions", "Sessions"),
      count("files", "Files", "narrow"),
      size("bytes", "Size"),
      size("side_bytes", "Side files", "narrow"),
      { ...when("oldest"), key: "oldest", title: "Oldest", hide: "narrow" },
      { ...when("last"), title: "Last active" },
    ],
  },
};

// Link to what a row counts: a list that has a filter for it, or else the worst cause.
function failuresHref({ by, name, top_group: worst, period }) {
  const calls = (filter) => href("/calls", {}, { ...period, unsuccessful: "yes", ...filter });
  if (["program", "tool", "kind"].includes(by)) return href("/errors", {}, { ...period, [by]: name });
  if (by === "day") {
    const start = parseDay(name);
    return calls({ since: start.toISOString(), until: midnight(start, -1).toISOString() });
  }
  if (by === "project") return calls({ in: name || "(none)" });
  if (by === "session" || by === "client") return calls({ [by]: name });
  return worst ? href("/errors", {}, { ...period, group: worst }) : null;
}

function diskHref({ by, name }) {
  if (by === "session") return href("/session/:id", { id: name });
  return by === "project" || by === "client" ? href("/sessions", {}, { [by]: name }) : null;
}

export default function Lists({ query: address, setQuery, setTitle }) {
  const query = withPeriod(address);
  const about = query.about in LISTS ? query.about : "prompts";
  const list = LISTS[about];
  useEffect(() => setTitle(list.title), [about]);
  const by = list.groupings && (list.groupings.includes(query.by) ? query.by : list.groupings[0]);
  const period = { since: query.since, until: query.until };
  const answer = useApi(list.route, { ...period, ...list.query, by }, { live: true });
  const rows = useMemo(
    () => (answer.data ?? []).map((row, n) => (by ? { ...row, n, by, period } : { ...row, n })),
    [answer.data],
  );
  const shown = useMemo(() => filterRows(rows, list.facets, query), [rows, about, choiceKey(list.facets, query)]);
  const open = (key) =>
    setQuery(
      {
        about: key === "prompts" ? null : key,
        sort: null,
        by: null,
        ...Object.fromEntries(list.facets.map((facet) => [facet.key, null])),
      },
      { replace: false },
    );
  const columns = list.columns;
  const sort = query.sort ?? list.sort;
  const main = columns.find(({ width }) => !width);
  const sorted = columns.find(({ key, align }) => key === sort.replace(/^-/, "") && align === "right");
  const phone = (row) =>
    html`<div class="two-lines">${sorted ? html`<b class="value">${sorted.cell(row)}</b>` : null}
    ${main.cell(row)}</div>`;
  return html`<section class="page fill lists"><div class="head"><h1>${list.title}</h1>
    <${Facts} items=${[
      answer.data && html`<span data-test="count">${plural(shown.length, list.noun)}</span>`,
      list.hint,
    ]} /></div>
    <div class="facets"><div class="segments" role="group" aria-label="List">
      ${Object.entries(LISTS).map(
        ([key, { title }]) =>
          html`<button key=${key} type="button" aria-pressed=${about === key} onClick=${() => open(key)}>${title}
          </button>`,
      )}</div></div>
    ${
      by
        ? html`<div class="facets"><div class="segments" role="group" aria-label="By">
        ${list.groupings.map(
          (name) =>
            html`
      <button key=${name} type="button" aria-pressed=${by === name}
        onClick=${() => setQuery({ by: name })}>${name.replace("-", " ")}</button>`,
        )}</div></div>`
        : null
    }
    <${Facets} key=${about} rows=${rows} facets=${list.facets} query=${query} setQuery=${setQuery}>
      <${PeriodFilter} query=${query} setQuery=${setQuery} /><//>
    <${Answer} of=${answer} what=${list.title.toLowerCase()}>
      ${() =>
        shown.length
          ? html`<${Table} key=${`${about} ${by}`} label=${list.title} rows=${shown}
            columns=${columns} sort=${sort} onSort=${(sort) => setQuery({ sort })}
      rowKey=${(row) => row.n} rowHref=${list.link} rowHeight=${46} rowClass=${() => "two-lines"} phone=${phone} />`
          : html`<${Empty}>${rows.length ? "Nothing matches these filters." : "There is nothing in this period."}<//>`}
        <//>
  </section>`;
}
