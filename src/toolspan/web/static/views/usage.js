// Usage: tokens and cost, and what fills the context.
// Query: by (day, week, month, block, model, project, agent, session, client, context), metric, since, until, sort.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { useApi } from "../api.js";
import { Share } from "../components/bars.js";
import { Facts, clientName } from "../components/badges.js";
import { Chart, useTheme } from "../components/chart.js";
import { Answer, Empty } from "../components/messages.js";
import { DAY, PeriodFilter, midnight, parseDay, withPeriod } from "../components/period.js";
import { partsOf, timeOf, timeZone } from "../components/zone.js";
import { Table } from "../components/table.js";
import {
  baseName,
  bytes,
  cost,
  dateTime,
  day,
  firstLine,
  number,
  oneLine,
  parseTime,
  plural,
  short,
  shortId,
  token,
} from "../components/format.js";
import { href, navigate } from "../router.js";

export const styles = ["vendor/uplot.css", "views/usage.css"];

const GROUPINGS = {
  day: "Day",
  week: "Week",
  month: "Month",
  block: "5-hour block",
  model: "Model",
  project: "Project",
  agent: "Agent",
  session: "Session",
  client: "Client",
  context: "Context",
};
const TIMES = ["day", "week", "month", "block"];
const KINDS = [
  ["input_tokens", "Input", "accent"],
  ["output_tokens", "Output", "good"],
  ["cache_creation_input_tokens", "Cache write", "warn"],
  ["cache_read_input_tokens", "Cache read", "info"],
];
const DAY_STEPS = [1, 2, 3, 4, 5, 7, 14, 28, 31, 62, 92, 183, 365].map((days) => days * 86_400);
const dayTitle = new Intl.DateTimeFormat("en", { month: "short", day: "numeric", timeZone });
const monthTitle = new Intl.DateTimeFormat("en", { month: "short", year: "numeric", timeZone });

export default function Usage({ query: address, setQuery, setTitle }) {
  const query = withPeriod(address);
  const by = query.by in GROUPINGS ? query.by : "day";
  useEffect(() => setTitle("Usage"), []);
  const head = html`<div class="facets"><div class="segments" role="group" aria-label="Group by">
    ${Object.entries(GROUPINGS).map(
      ([key, title]) =>
        html`<button key=${key} type="button" aria-pressed=${by === key}
          onClick=${() => setQuery({ by: key === "day" ? null : key, sort: null }, { replace: false })}>${title}
          </button>`,
    )}</div>
    <${PeriodFilter} query=${query} setQuery=${setQuery} /></div>`;
  return html`<section class="page fill usage">${
    by === "context"
      ? html`<${Context} query=${query} setQuery=${setQuery} head=${head} />`
      : html`<${Tokens} key=${by} by=${by} query=${query} setQuery=${setQuery} head=${head} />`
  }</section>`;
}

const total = (row) => KINDS.reduce((sum, [key]) => sum + row[key], 0);

// The first moment of a row that stands for a period, and the first one after it.
function spanOf(by, row) {
  if (by === "block") return [new Date(row.period), new Date(Number(new Date(row.period)) + 5 * (DAY / 24))];
  if (by === "month") {
    const start = parseDay(`${row.period}-01`);
    const { year, month } = partsOf(start);
    return [start, timeOf(year, month + 1)];
  }
  const start = by === "week" ? weekStart(row.period) : parseDay(row.period);
  return [start, midnight(start, by === "week" ? -7 : -1)];
}

// The Monday of "2026-W45", or of a date
function weekStart(text) {
  const match = /^(\d+)-W(\d+)$/.exec(text);
  if (!match) return parseDay(text);
  const fourth = timeOf(Number(match[1]), 0, 4); // always in the first week
  return midnight(fourth, ((partsOf(fourth).weekday + 6) % 7) - (Number(match[2]) - 1) * 7);
}

function rowLink(by, row, query) {
  const period = { since: query.since, until: query.until };
  if (row.span)
    return href(
      "/usage",
      {},
      { by: "session", since: row.span[0].toISOString(), until: row.span[1].toISOString(), metric: query.metric },
    );
  if (by === "session") return href("/session/:id", { id: row.session });
  if (by === "client") return href("/sessions", {}, { ...period, client: row.client });
  return by === "agent" ? null : href("/sessions", {}, { ...period, [by]: row[by] });
}

function Tokens({ by, query, setQuery, head }) {
  const metric = query.metric === "tokens" ? "tokens" : "cost";
  const answer = useApi("usage", { by, since: query.since, until: query.until }, { live: true });
  const sessions = useApi(by === "session" ? "sessions" : null, { fields: "id,title,first_prompt,project" });
  const titles = useMemo(
    () => new Map((sessions.data ?? []).map((row) => [row.id, firstLine(row.title || row.first_prompt)])),
    [sessions.data],
  );
  const isTime = TIMES.includes(by);
  const rows = useMemo(
    () =>
      (answer.data ?? []).map((row, n) => {
        const full = { ...row, n, total: total(row), span: isTime ? spanOf(by, row) : null };
        return { ...full, name: nameOf(by, full, titles), link: rowLink(by, full, query) };
      }),
    [answer.data, titles, query.since, query.until, query.metric],
  );
  const sums = useMemo(
    () => ({
      total: add(rows, "total"),
      cost: add(rows, "cost_usd"),
      unpriced: add(rows, "unpriced_requests"),
      requests: add(rows, "requests"),
      mostCost: most(rows, "cost_usd"),
      mostTotal: most(rows, "total"),
    }),
    [rows],
  );
  const columns = useMemo(
    () => [
      {
        key: "name",
        title: GROUPINGS[by],
        newest: isTime,
        cell: (row) => (row.link ? html`<a href=${row.link} title=${row.hint}>${row.name}</a>` : row.name),
        value: (row) => (row.span ? row.span[0].getTime() : row.name),
      },
      {
        key: "share",
        title: metric === "cost" ? "Cost" : "Tokens",
        width: "10rem",
        hide: "phone",
        cell: (row) =>
          html`<span class="share-cell"><${Share} value=${metric === "cost" ? (row.cost_usd ?? 0) : row.total}
          of=${metric === "cost" ? sums.mostCost : sums.mostTotal} tone=${metric === "cost" ? "info" : "accent"} />
        </span>`,
      },
      {
        key: "requests",
        title: "Requests",
        width: "6rem",
        align: "right",
        cell: (row) => number(row.requests),
        value: (row) => row.requests,
      },
      ...KINDS.map(([key, title]) => ({
        key,
        title,
        width: "7.2rem",
        align: "right",
        hide: "narrow",
        cell: (row) => number(row[key]),
        value: (row) => row[key],
      })),
      {
        key: "total",
        title: "Tokens",
        width: "7.2rem",
        align: "right",
        cell: (row) => html`<span title=${number(row.total)}>${short(row.total)}</span>`,
        value: (row) => row.total,
      },
      {
        key: "cost",
        title: "Cost",
        width: "6.5rem",
        align: "right",
        cell: (row) =>
          html`${
            row.unpriced_requests
              ? html`<span class="faint"
            title=${`${plural(row.unpriced_requests, "request")} without a price`}>≥ </span>`
              : null
          }<b>
        ${row.cost_usd === null ? "no price" : cost(row.cost_usd)}</b>`,
        value: (row) => row.cost_usd,
      },
    ],
    [by, metric, sums],
  );
  const phone = (row) =>
    html`<a href=${row.link}>${row.name}</a>
    <${Facts} className="faint" items=${[
      cost(row.cost_usd),
      `${short(row.total)} tokens`,
      plural(row.requests, "request"),
    ]} />`;
  return html`<div class="head"><h1>Usage</h1><${Facts} items=${
    answer.data
      ? [
          html`<b data-test="cost">${cost(sums.cost)}</b>`,
          html`<span data-test="tokens" title=${number(sums.total)}>${short(sums.total)} tokens</span>`,
          plural(sums.requests, "request"),
          sums.unpriced > 0 && `${plural(sums.unpriced, "request")} without a price`,
        ]
      : []
  } />
      <div class="segments metric" role="group" aria-label="Show">
        ${[
          ["cost", "Cost"],
          ["tokens", "Tokens"],
        ].map(
          ([key, title]) =>
            html`<button key=${key} type="button" aria-pressed=${metric === key}
              onClick=${() => setQuery({ metric: key === "cost" ? null : key })}>${title}</button>`,
        )}</div></div>
    ${head}
    <${Answer} of=${answer} what="usage">${() =>
      rows.length
        ? html`
      ${isTime && rows.length > 1 ? html`<${TimeChart} rows=${rows} by=${by} metric=${metric} />` : null}
      <${Table} label=${`Usage by ${GROUPINGS[by]}`} rows=${rows} columns=${columns} sort=${
        query.sort ?? (isTime ? "-name" : metric === "cost" ? "-cost" : "-total")
      } onSort=${(sort) => setQuery({ sort })}
        rowKey=${(row) => row.n} rowHref=${by === "agent" ? undefined : (row) => row.link} rowHeight=${30}
          phone=${phone} />`
        : html`<${Empty}>No request in this period.<//>`}<//>`;
}

function nameOf(by, row, titles) {
  if (by === "session") return titles.get(row.session) || shortId(row.session);
  if (by === "client") return clientName(row.client);
  if (by === "project") return baseName(row.project) ? `${baseName(row.project)}  ${row.project}` : "(none)";
  if (by === "block") return `${dateTime(row.span[0]).slice(0, -3)} to ${dateTime(row.span[1]).slice(11, -3)}`;
  if (by === "week") return `${row.period}, from ${day(row.span[0])}`;
  return row.period ?? row[by] ?? "(none)";
}

const most = (rows, key) => rows.reduce((top, row) => Math.max(top, row[key] ?? 0), 0);
const add = (rows, key) => rows.reduce((sum, row) => sum + (row[key] ?? 0), 0);

// Ticks at local midnight, for long steps on the first day of months: a step of 30 days would name a month twice.
function dateSplits(_, __, min, max, step) {
  const first = midnight(new Date(min * 1000));
  const months = Math.round(step / (30 * 86_400));
  const splits = [];
  for (let n = 0; ; n += 1) {
    const at = months
      ? timeOf(partsOf(first).year, partsOf(first).month + n * months)
      : midnight(first, -n * Math.round(step / 86_400));
    if (at > max * 1000) return splits;
    if (at >= min * 1000) splits.push(at / 1000);
  }
}

// Bars of cost, or stacked bars of tokens. A click opens the sessions of the period.
function TimeChart({ rows, by, metric }) {
  const theme = useTheme();
  const [over, setOver] = useState(null);
  const sorted = useMemo(() => [...rows].sort((one, other) => one.span[0] - other.span[0]), [rows]);
  const data = useMemo(() => {
    const times = sorted.map(({ span }) => span[0] / 1000);
    if (metric === "cost") return [times, sorted.map(({ cost_usd }) => cost_usd ?? 0)];
    return [
      times,
      ...KINDS.map((_, n) => sorted.map((row) => KINDS.slice(n).reduce((sum, [key]) => sum + row[key], 0))),
    ];
  }, [sorted, metric]);
  const options = useMemo(
    () => (UPlot) => {
      const axis = {
        stroke: token("faint"),
        grid: { stroke: token("line"), width: 1 },
        ticks: { stroke: token("line"), width: 1 },
        font: `11px ${token("font")}`,
      };
      const paths = UPlot.paths.bars({ size: [0.8, 40] });
      const series = metric === "cost" ? [["Cost", "info"]] : KINDS.map(([, title, tone]) => [title, tone]);
      const width = by === "month" ? 31 * DAY : by === "week" ? 7 * DAY : by === "day" ? DAY : DAY / 4;
      return {
        legend: { show: false },
        padding: [8, 8, 0, 0],
        cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
        scales: {
          x: { time: true, range: (_, from, to) => [from - width / 2000, to + width / 2000] },
          y: { range: (_, __, to) => [0, (to || 1) * 1.05] },
        },
        axes: [
          {
            ...axis,
            ...(by === "block"
              ? {}
              : {
                  space: 70,
                  incrs: DAY_STEPS,
                  splits: dateSplits,
                  values: (_, splits, __, ___, step) =>
                    splits.map((at) => (step < 28 * 86_400 ? dayTitle : monthTitle).format(at * 1000)),
                }),
          },
          {
            ...axis,
            size: 58,
            values: (_, values) =>
              values.map((value) => (metric === "cost" ? `$${value >= 1000 ? short(value) : value}` : short(value))),
          },
        ],
        series: [
          {},
          ...series.map(([label, tone]) => ({
            label,
            paths,
            fill: token(tone),
            stroke: token(tone),
            width: 0,
            points: { show: false },
          })),
        ],
        hooks: {
          setCursor: [(chart) => setOver(chart.cursor.idx ?? null)],
          ready: [
            (chart) =>
              chart.over.addEventListener("click", () => {
                const row = sorted[chart.cursor.idx];
                if (row) navigate(row.link);
              }),
          ],
        },
      };
    },
    [sorted, metric, theme],
  );
  const row = over === null ? null : sorted[over];
  return html`<div class="card usage-chart"><p class="readout" aria-hidden="true">
    ${
      row
        ? html`<b>${row.name}</b> <span>${cost(row.cost_usd)}
        </span> ${KINDS.map(
          ([key, title, tone]) =>
            html`<span key=${key}><i class="tone-${tone}"></i>
          ${title} ${short(row[key])}</span> `,
        )}`
        : metric === "tokens"
          ? KINDS.map(([key, title, tone]) => html`<span key=${key}><i class="tone-${tone}"></i>${title}</span> `)
          : html`<span class="faint">Cost per ${GROUPINGS[by].toLowerCase()}; click a bar for its sessions</span>`
    }</p>
    <${Chart} data=${data} options=${options} height=${170}
      label=${`${
        metric === "cost" ? "Cost" : "Tokens"
      } per ${GROUPINGS[by].toLowerCase()}; the table below has the numbers`} /></div>`;
}

// What fills the context: the results that each request sends again, by tool and by call.
function Context({ query, setQuery, head }) {
  const answer = useApi("usage", { context: true, limit: 100, since: query.since, until: query.until }, { live: true });
  const tools = useMemo(() => (answer.data ?? []).filter(({ row }) => row === "tool"), [answer.data]);
  const calls = useMemo(
    () =>
      (answer.data ?? []).filter(({ row }) => row === "call").map((row, n) => ({ ...row, n, time: parseTime(row.at) })),
    [answer.data],
  );
  const largest = most(tools, "resent_tokens");
  const filter = { since: query.since, until: query.until };
  const columns = useMemo(
    () => [
      { key: "tool", title: "Tool", width: "9rem", cell: (row) => html`<b>${row.tool}</b>`, value: (row) => row.tool },
      {
        key: "about",
        title: "Call",
        cell: (row) =>
          html`<a class="mono"
          href=${href("/call/:id", { id: row.call }, { session: row.session })}>
        ${oneLine(row.target) || shortId(row.call)}</a>`,
        value: (row) => row.target,
      },
      {
        key: "bytes",
        title: "Result",
        width: "6rem",
        align: "right",
        cell: (row) => bytes(row.bytes),
        value: (row) => row.bytes,
      },
      {
        key: "requests",
        title: "Requests",
        width: "6rem",
        align: "right",
        hide: "narrow",
        cell: (row) => number(row.requests),
        value: (row) => row.requests,
      },
      {
        key: "resent",
        title: "≈ tokens sent",
        width: "8rem",
        align: "right",
        cell: (row) => html`<span title=${number(row.resent_tokens)}>${short(row.resent_tokens)}</span>`,
        value: (row) => row.resent_tokens,
      },
    ],
    [],
  );
  const phone = (row) =>
    html`<a class="mono" href=${href("/call/:id", { id: row.call }, { session: row.session })}><b>
    ${row.tool}</b> ${oneLine(row.target) || shortId(row.call)}</a>
    <${Facts} className="faint" items=${[bytes(row.bytes), `${short(row.resent_tokens)} tokens sent`]} />`;
  return html`<div class="head"><h1>Usage</h1><p class="summary">
    What fills the context: a result is sent again with each request that follows it.</p></div>${head}
    <${Answer} of=${answer} what="the context">${() =>
      tools.length
        ? html`<div class="context">
      <div class="card by-tool"><h2>By tool</h2><table class="plain mini"><thead><tr><th scope="col">Tool</th>
        <th scope="col"></th><th scope="col" class="right">Calls</th><th scope="col" class="right">Results</th>
        <th scope="col" class="right">≈ tokens sent</th></tr></thead>
        <tbody>${tools.slice(0, 40).map(
          (row) =>
            html`<tr key=${row.tool}><td class="cut">
              <a href=${href("/calls", {}, { ...filter, tool: row.tool })} title=${row.tool}>${row.tool}</a></td>
              <td class="share-cell"><${Share} value=${row.resent_tokens} of=${largest} /></td>
          <td class="right">${number(row.calls)}</td><td class="right">${bytes(row.bytes)}</td><td class="right">
            ${short(row.resent_tokens)}</td></tr>`,
        )}</tbody></table></div>
      <${Table} label="Largest results" rows=${calls} columns=${columns} sort=${query.sort ?? "-resent"}
        onSort=${(sort) => setQuery({ sort })} rowKey=${(row) => row.n}
        rowHref=${(row) => href("/call/:id", { id: row.call }, { session: row.session })} rowHeight=${30}
        phone=${phone} />
    </div>`
        : html`<${Empty}>No results in this period.<//>`}<//>`;
}
