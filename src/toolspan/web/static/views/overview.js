// Overview: what happened lately. Every mark is a link to what it counts. Query: days (1, 7, 30, 90, all).
// Each part asks for its own data, the cheapest first, so that the page fills from the top.
import { html, useEffect, useMemo } from "../lib.js";
import { useApi, useLive } from "../api.js";
import { usageTokens } from "../components/badges.js";
import { Bars, Sparkline } from "../components/bars.js";
import { Empty, Problem } from "../components/messages.js";
import { CustomPeriod, DAY, PeriodChoice, PeriodMark, midnight, parseDay, periodStart } from "../components/period.js";
import { partsOf, timeOf, timeZone } from "../components/zone.js";
import {
  ago,
  baseName,
  change,
  cost,
  day,
  duration,
  firstLine,
  number,
  parseTime,
  percent,
  plural,
  short,
  shortId,
  toolName,
  words,
} from "../components/format.js";
import { kindName } from "../components/words.js";
import { href } from "../router.js";

export const styles = ["views/overview.css"];

const TIME_PARTS = {
  model: "info",
  tools: "good",
  permission: "warn",
  hooks: "odd",
  idle: "muted",
  nothing_recorded: "faint",
};
const MAX_HOUR_DAYS = 14; // longer periods show a square per three hours, or per day
const MAX_BLOCK_DAYS = 45;
const BLOCK = 3;
const ROWS = 7;
const LATEST = 12;

export default function Overview({ query, setQuery, setTitle }) {
  useEffect(() => setTitle(""), []);
  const { since, until } = query;
  const days = query.days ?? (since || until ? "custom" : "7");
  const activity = useApi("stats", { by: "hour" }, { live: true });
  const hours = useMemo(
    () =>
      activity.data?.hours
        .filter((row) => row.hour !== "unknown")
        .map((row) => ({ ...row, start: new Date(row.hour) })),
    [activity.data],
  );
  const period = useMemo(() => {
    if (!hours) return null;
    const last = hours.length ? new Date(hours.at(-1).start) : new Date();
    const now = new Date();
    const first = midnight(hours[0]?.start ?? now);
    if (days === "custom")
      return {
        ...makePeriod(since ? new Date(since) : first, until ? new Date(until) : midnight(now, -1)),
        asked: { since, until },
      };
    const end = now - last < 7 * DAY || days === "quarter" ? now : last;
    const start = periodStart(days, end) ?? first;
    const stop = days === "yesterday" ? midnight(end) : midnight(end, -1);
    const isRolling = end === now;
    return {
      ...makePeriod(start, stop),
      asked: days === "all" ? {} : isRolling ? { days } : { since: start.toISOString() },
      days,
    };
  }, [hours, days, since, until]);
  const seen = useMemo(
    () => (hours && period ? hours.filter(({ start }) => start >= period.since && start < period.until) : null),
    [hours, period],
  );
  const filter = period?.asked ?? {}; // of the lists that the marks lead to
  const asked =
    period && period.asked.since === undefined && days !== "all"
      ? { since: period.since.toISOString(), until: days === "yesterday" ? period.until.toISOString() : undefined }
      : filter;
  const usage = useApi("usage", { by: "day" }, { live: true });
  const stats = useApi(period ? "stats" : null, asked, { live: true });
  const time = useApi(period ? "time" : null, { ...asked, limit: 1, fields: "split" }, { live: true });
  const errors = useApi("errors", { fields: "id,kind,tool,program,message,per_day,count,cause" }, { live: true });
  const latest = useApi("sessions", { sort: "-ended", limit: LATEST }, { live: true });
  const spent = useMemo(
    () =>
      usage.data && period
        ? usage.data
            .map((row) => ({ ...row, start: parseDay(row.period) }))
            .filter(({ start }) => start >= period.since && start < period.until)
        : null,
    [usage.data, period],
  );

  const before = useMemo(
    () => (hours && usage.data && period && days !== "all" ? sumBefore(hours, usage.data, period) : null),
    [hours, usage.data, period],
  );

  return html`<section class="page overview">
    <div class="head"><h1>Overview</h1>
      <${PeriodChoice} value=${days} onChange=${(value) =>
        setQuery({ days: value === "7" ? null : value, since: null, until: null }, { replace: false })} />
      <${CustomPeriod} query=${query} setQuery=${setQuery} /><${PeriodMark} query=${query} setQuery=${setQuery} />
      ${period && hours.length ? html`<p class="summary">${day(period.since)} to ${day(period.last)}</p>` : null}
      <a href="/digest" title="Costs, worst causes and what to do, compared with the week before">Digest</a>
    </div>
    ${
      activity.error
        ? html`<${Problem} error=${activity.error} />`
        : hours && !hours.length
          ? html`<${Empty}>There are no tool calls yet. Use an agent, or look at the sample:
        <code>toolspan ui --demo</code><//>`
          : html`
    <${Tiles} seen=${seen} stats=${stats.data} spent=${spent} before=${before} filter=${filter} />
    <div class="board">
      <${Card} title="Activity" className="wide" of=${activity} ready=${seen} hint="calls per hour or day">
        ${() => html`<${HeatMap} seen=${seen} period=${period} />`}<//>
      <${Card} title="Where the time went" of=${time}>
        ${(data) => html`<${TimeSplit} split=${data.split} filter=${filter} />`}<//>
      <${Card} title="Latest sessions" className="wide" of=${latest} more="/sessions">
        ${(data) => html`<${Latest} sessions=${data} />`}<//>
      <${Card} title="Cost" of=${usage} ready=${spent} more=${href("/usage", {}, filter)}>
        ${() => html`<${Cost} spent=${spent} period=${period} />`}<//>
      <${Card} title="Calls" className="wide" of=${activity} ready=${seen}>
        ${() => html`<${CallBars} seen=${seen} period=${period} />`}<//>
      <${Card} title="Slowest tools" of=${stats} more=${href("/calls", {}, { ...filter, sort: "-duration_ms" })}>
        ${(data) => html`<${Tools} tools=${data.tools} filter=${filter} />`}<//>
      <${Card} title="Top causes of errors" className="full" of=${errors} ready=${errors.data && period}
        more=${href("/errors", {}, filter)}>${(data) =>
          html`<${Causes} groups=${data} period=${period} filter=${filter} />`}<//>
      ${
        stats.data?.servers.length === 0
          ? null
          : html`<${Card} title="MCP servers" className="full" of=${stats}>
          ${(data) => html`<${Servers} servers=${data.servers} filter=${filter} />`}<//>`
      }
    </div>`
    }
  </section>`;
}

const makePeriod = (since, until) => ({ since, until, last: new Date(until - 1) });

// Calls, tokens and cost of the time before a period that is as long.
function sumBefore(hours, usage, { since, until }) {
  const from = midnight(since, Math.round((until - since) / DAY));
  const rows = hours.filter(({ start }) => start >= from && start < since);
  const days = usage.filter(({ period }) => {
    const start = parseDay(period);
    return start >= from && start < since;
  });
  if (!rows.length && !days.length) return null;
  const sum = (list, value) => list.reduce((total, row) => total + (value(row) ?? 0), 0);
  return {
    calls: sum(rows, (row) => row.calls),
    unsuccessful: sum(rows, (row) => row.unsuccessful),
    tokens: sum(days, usageTokens),
    cost: sum(days, (row) => row.cost_usd),
  };
}

function Card({ title, of, ready = of.data, className = "", more, children }) {
  const draw = Array.isArray(children) ? children[0] : children;
  return html`<section class=${`card ${className}`}><h2>${title}
    ${more ? html`<a class="more" href=${more}>all<span class="sr-only"> of ${title}</span></a>` : null}</h2>
    ${
      of.error
        ? html`<p class="tone-bad" role="alert">${of.error.message}</p>`
        : ready
          ? draw(of.data)
          : html`<div class="skeleton" role="status"><span class="sr-only">Loading ${title}</span></div>`
    }</section>`;
}

function Tiles({ seen, stats, spent, before, filter }) {
  const { sessions: live, waiting } = useLive();
  const calls = seen?.reduce((sum, row) => sum + row.calls, 0);
  const unsuccessful = seen?.reduce((sum, row) => sum + row.unsuccessful, 0);
  const tokens = spent?.reduce((sum, row) => sum + usageTokens(row), 0);
  const spentCost = spent?.reduce((sum, row) => sum + (row.cost_usd ?? 0), 0);
  const running = live?.filter(({ status }) => status === "running").length;
  const dead = live?.filter(({ status }) => status === "dead").length;
  const tiles = [
    ["Calls", "overview-calls", number(calls), href("/calls", {}, filter), change(calls, before?.calls)],
    [
      "Unsuccessful",
      "overview-unsuccessful",
      number(unsuccessful),
      href("/calls", {}, { ...filter, unsuccessful: "yes" }),
      [calls ? `${((unsuccessful / calls) * 100).toFixed(1)}%` : "", change(unsuccessful, before?.unsuccessful)]
        .filter(Boolean)
        .join(", "),
      unsuccessful ? "bad" : "",
    ],
    ["Sessions", "sessions", number(stats?.sessions), href("/sessions", {}, filter)],
    [
      "Tokens",
      "overview-tokens",
      tokens === undefined ? undefined : short(tokens),
      href("/usage", {}, { ...filter, metric: "tokens" }),
      change(tokens, before?.tokens),
    ],
    [
      "Cost",
      "overview-cost",
      spent ? cost(spentCost) : undefined,
      href("/usage", {}, filter),
      change(spentCost, before?.cost),
    ],
    [
      "Now",
      "overview-live",
      live === null ? undefined : waiting ? `${number(waiting)} waiting` : `${number(running)} running`,
      "/live",
      dead ? `${number(dead)} broke off` : "",
      waiting ? "warn" : "",
    ],
  ];
  return html`<div class="tiles">${tiles.map(
    ([title, test, value, link, note, tone]) =>
      html`<a key=${title} class="card tile" href=${link}>
    <span class="name">${title}</span><span class=${`figure ${tone ? `tone-${tone}` : ""}`} data-test=${test}>
      ${value || html`<span class="faint">…</span>`}</span>
      ${
        note
          ? html`<span class="note-small" title=${
              before ? "compared with the time before that is as long" : undefined
            }>${note}</span>`
          : null
      }</a>`,
  )}</div>`;
}

const between = (since, until, more = {}) =>
  href("/calls", {}, { since: since.toISOString(), until: until.toISOString(), ...more });
const level = (count, top) => (count ? Math.min(4, 1 + Math.floor((Math.log1p(count) / Math.log1p(top)) * 3.99)) : 0);
const weekdays = new Intl.DateTimeFormat("en", { weekday: "short", timeZone });
const dayTitle = new Intl.DateTimeFormat("en", { weekday: "short", month: "short", day: "numeric", timeZone });
const monthTitle = new Intl.DateTimeFormat("en", { month: "short", timeZone });

function* daysOf(period) {
  for (let start = period.since; start < period.until; start = midnight(start, -1)) yield start;
}

const monthOf = (time) => partsOf(new Date(time)).month;

function HeatMap({ seen, period }) {
  return (period.until - period.since) / DAY <= MAX_HOUR_DAYS + 0.5
    ? html`<${HourMap} seen=${seen} period=${period} />`
    : html`<${DayMap} seen=${seen} period=${period} />`;
}

// Arrow keys move to the nearest square with calls in that direction, by place on the screen.
function moveInMap(event) {
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!way || !event.target.matches(".heat a") || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  const centre = (element) => {
    const box = element.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const [x, y] = centre(event.target);
  let [best, least] = [null, Infinity];
  for (const link of event.currentTarget.querySelectorAll("a")) {
    const [dx, dy] = [centre(link)[0] - x, centre(link)[1] - y];
    const ahead = dx * way[0] + dy * way[1];
    const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (ahead > 2 && ahead + 3 * aside < least) [best, least] = [link, ahead + 3 * aside];
  }
  best?.focus();
}

// A row per day, a square per hour.
function HourMap({ seen, period }) {
  const byHour = new Map(seen.map((row) => [Number(row.start), row]));
  const top = seen.reduce((most, { calls }) => Math.max(most, calls), 0);
  return html`<div class="heat hours" role="group" aria-label="Calls by day and hour; arrow keys move"
      onKeyDown=${moveInMap}>
    <span></span>${Array.from(
      { length: 24 },
      (_, hour) => html`<span key=${`h${hour}`} class="axis" aria-hidden="true">${hour % 3 ? "" : hour}</span>`,
    )}
    ${[...daysOf(period)].map((start) => {
      const next = midnight(start, -1);
      const rows = seen.filter((row) => row.start >= start && row.start < next);
      const total = rows.reduce((sum, { calls }) => sum + calls, 0);
      return html`<a key=${Number(start)} class="axis" href=${between(start, next)}
          aria-label=${`${dayTitle.format(start)}: ${plural(total, "call")}`}>${dayTitle.format(start)}</a>
        ${Array.from({ length: 24 }, (_, hour) => {
          const { year, month, date } = partsOf(start);
          const at = timeOf(year, month, date, hour);
          return html`<${Square} row=${byHour.get(Number(at))} at=${at} until=${new Date(Number(at) + DAY / 24)}
              top=${top} title=${`${day(at)} ${String(hour).padStart(2, "0")}:00`} />`;
        })}`;
    })}</div>`;
}

const blockStart = ({ year, month, date, hours }) => timeOf(year, month, date, hours - (hours % BLOCK));

// A column per day and a square per three hours, or a column per week and a square per day.
function DayMap({ seen, period }) {
  const inBlocks = (period.until - period.since) / DAY <= MAX_BLOCK_DAYS;
  const size = inBlocks ? 24 / BLOCK : 7;
  const counts = new Map();
  for (const row of seen) {
    const key = Number(inBlocks ? blockStart(partsOf(row.start)) : midnight(row.start));
    const sum = counts.get(key) ?? { calls: 0, unsuccessful: 0 };
    counts.set(key, { calls: sum.calls + row.calls, unsuccessful: sum.unsuccessful + row.unsuccessful });
  }
  const top = [...counts.values()].reduce((most, { calls }) => Math.max(most, calls), 0);
  const monday = midnight(period.since, (partsOf(period.since).weekday + 6) % 7);
  const weeks = [];
  for (let week = monday; week < period.until; week = midnight(week, -7)) weeks.push(week);
  const shown = inBlocks ? [...daysOf(period)] : weeks.slice(-60);
  const squareStart = (column, n) =>
    n === size ? midnight(column, -1) : blockStart({ ...partsOf(column), hours: n * BLOCK });
  const title = (column, n) =>
    inBlocks
      ? partsOf(column).weekday === 1
        ? dayTitle.format(column)
        : ""
      : (n === 0 && monthOf(shown[2] ?? 0) === monthOf(column)) || (n && monthOf(column) !== monthOf(shown[n - 1]))
        ? monthTitle.format(column)
        : "";
  return html`<div class=${`heat weeks${inBlocks ? " blocks" : ""}`} role="group"
    aria-label="Calls by day; arrow keys move" onKeyDown=${moveInMap}>
    <div class="week names" aria-hidden="true"><span class="axis"></span>
      ${Array.from(
        { length: size },
        (_, n) =>
          html`<span key=${n} class="axis">
          ${n % 2 ? "" : inBlocks ? `${n * BLOCK}:00` : weekdays.format(midnight(monday, -n))}</span>`,
      )}</div>
    ${shown.map(
      (column, n) =>
        html`<div class="week" key=${Number(column)}>
      <span class="axis" aria-hidden="true">${title(column, n)}</span>
      ${Array.from({ length: size }, (_, k) => {
        const at = inBlocks ? squareStart(column, k) : midnight(column, -k);
        const until = inBlocks ? squareStart(column, k + 1) : midnight(at, -1);
        return html`<${Square} key=${k} row=${counts.get(Number(at))} at=${at} until=${until} top=${top}
            title=${inBlocks ? `${dayTitle.format(at)}, ${k * BLOCK} to ${(k + 1) * BLOCK} h` : day(at)}
            reach=${true} />`;
      })}</div>`,
    )}</div>`;
}

function Square({ row, at, until, top, title, reach = false }) {
  if (!row) return html`<span class="cell level-0" title=${`${title}: no calls`}></span>`;
  const text = `${title}: ${plural(row.calls, "call")}${
    row.unsuccessful ? `, ${number(row.unsuccessful)} unsuccessful` : ""
  }`;
  return html`<a class=${`cell level-${level(row.calls, top)}`} href=${between(at, until)} title=${text}
      aria-label=${text} tabindex=${reach ? undefined : -1} data-calls=${row.calls}></a>`;
}

// Bars per hour for a day, per day for a season, else per week.
function CallBars({ seen, period }) {
  const length = (period.until - period.since) / DAY;
  const bars = useMemo(() => {
    const next =
      length <= 1.5
        ? (time) => new Date(Number(time) + DAY / 24)
        : length <= 100
          ? (time) => midnight(time, -1)
          : (time) => midnight(time, -7);
    const list = [];
    let n = 0;
    for (
      let start = length > 100 ? midnight(period.since, (partsOf(period.since).weekday + 6) % 7) : period.since;
      start < period.until;
      start = next(start)
    ) {
      const until = next(start);
      let [calls, unsuccessful] = [0, 0];
      for (; n < seen.length && seen[n].start < until; n += 1) {
        calls += seen[n].calls;
        unsuccessful += seen[n].unsuccessful;
      }
      const name =
        length <= 1.5
          ? `${String(partsOf(start).hours).padStart(2, "0")}:00`
          : length <= 100
            ? dayTitle.format(start)
            : `week of ${day(start)}`;
      list.push({
        key: Number(start),
        title: `${name}: ${plural(calls, "call")}, ${number(unsuccessful)} unsuccessful`,
        href: between(start, until),
        start,
        parts: [
          { value: unsuccessful, tone: "bad" },
          { value: calls - unsuccessful, tone: "accent" },
        ],
      });
    }
    return list.slice(-120);
  }, [seen, period]);
  const name = ({ start }) => (length <= 1.5 ? `${partsOf(start).hours}:00` : dayTitle.format(start));
  return html`<${Bars} bars=${bars} format=${(value) => (Number.isInteger(value) ? short(value) : "")}
      label="Calls over time" labels=${
        bars.length > 8 ? [bars[0], bars[Math.floor(bars.length / 2)], bars.at(-1)].map(name) : bars.map(name)
      } />
    <p class="legend"><span><i class="tone-accent"></i>succeeded</span><span><i class="tone-bad"></i>unsuccessful</span>
      </p>`;
}

function Cost({ spent, period }) {
  const byDay = new Map(spent.map((row) => [Number(row.start), row]));
  const length = (period.until - period.since) / DAY;
  const bars = [];
  let open = null;
  for (const start of daysOf(period)) {
    const row = byDay.get(Number(start));
    if (open === null || length <= 100 || partsOf(start).weekday === 1)
      bars.push((open = { start, until: null, cost: 0, tokens: 0 }));
    open.until = midnight(start, -1);
    open.cost += row?.cost_usd ?? 0;
    open.tokens += row ? usageTokens(row) : 0;
  }
  const total = spent.reduce((sum, row) => sum + usageTokens(row), 0);
  const cached = spent.reduce((sum, row) => sum + row.cache_read_input_tokens, 0);
  const unpriced = spent.reduce((sum, row) => sum + row.unpriced_requests, 0);
  return html`<${Bars} label="Cost per day" format=${(value) =>
    value >= 10 ? `$${short(Math.round(value))}` : cost(value)}
      labels=${[dayTitle.format(bars[0].start), dayTitle.format(bars.at(-1).start)]}
    bars=${bars
      .slice(-120)
      .map((bar) => ({
        key: Number(bar.start),
        title: `${day(bar.start)}: ${cost(bar.cost)}, ${short(bar.tokens)} tokens`,
        href: href("/usage", {}, { by: "session", since: bar.start.toISOString(), until: bar.until.toISOString() }),
        parts: [{ value: bar.cost || (bar.tokens ? 1e-9 : 0), tone: "info" }],
      }))} />
    <p class="legend">${short(total)} tokens${
      total ? `, ${Math.round((cached / total) * 100)}% read from the cache` : ""
    }${unpriced ? `; ${plural(unpriced, "request")} without a price` : ""}</p>`;
}

function TimeSplit({ split, filter }) {
  const parts = Object.entries(TIME_PARTS)
    .map(([name, tone]) => [name, split[`${name}_ms`] ?? 0, tone])
    .filter(([, ms]) => ms > 0);
  const links = {
    model: href("/usage", {}, { ...filter, by: "model" }),
    tools: href("/calls", {}, { ...filter, sort: "-duration_ms" }),
    permission: href("/calls", {}, { ...filter, sort: "-duration_ms" }),
    hooks: href("/calls", {}, filter),
  };
  const sessions = href("/sessions", {}, { ...filter, sort: "-duration" });
  // they would be most of the bar
  const used = parts.filter(([name]) => name !== "idle" && name !== "nothing_recorded");
  const usedTime = used.reduce((sum, [, ms]) => sum + ms, 0);
  if (!parts.length) return html`<${Empty}>No time was recorded.<//>`;
  return html`<div class="stack" aria-hidden="true">
    ${used.map(
      ([name, ms, tone]) =>
        html`<a key=${name} tabindex="-1" class="tone-${tone}" href=${
          links[name] ?? sessions
        } style=${{ flexGrow: ms }} title=${`${words(name)} ${duration(ms)}`}></a>`,
    )}</div>
    <table class="plain mini"><tbody>${parts.map(
      ([name, ms, tone]) =>
        html`<tr key=${name}><td><i class="tone-${tone}"></i> <a href=${links[name] ?? sessions}>${words(name)}</a></td>
      <td class="right">${duration(ms)}</td><td class="right faint">
        ${used.some(([one]) => one === name) ? percent(ms, usedTime) : ""}</td></tr>`,
    )}</tbody></table>
    <p class="legend">${duration(usedTime)} active, ${duration(split.wall_ms)} in all sessions</p>`;
}

function Causes({ groups, period, filter }) {
  const days = Math.min(30, Math.max(2, Math.round((period.until - period.since) / DAY)));
  const counted = useMemo(
    () =>
      groups
        .filter(({ kind }) => kind !== "nothing_found")
        .map((group) => {
          const entries = Object.entries(group.per_day)
            .map(([text, count]) => [parseDay(text), count])
            .filter(([at]) => at >= period.since && at < period.until);
          const values = Array(days).fill(0);
          const width = (period.until - period.since) / days;
          for (const [at, count] of entries)
            values[Math.min(days - 1, Math.floor((at - period.since + 1) / width))] += count;
          return { ...group, seen: entries.reduce((sum, [, count]) => sum + count, 0), values };
        })
        .filter(({ seen }) => seen)
        .sort((one, other) => other.seen - one.seen),
    [groups, period],
  );
  if (!counted.length) return html`<${Empty}>All calls succeeded.<//>`;
  return html`<table class="plain mini causes"><tbody>
    ${counted.slice(0, ROWS).map(
      (group) =>
        html`<tr key=${group.id} class="linked">
    <td class="right"><a class="tone-bad" href=${href("/errors", {}, { ...filter, group: group.id })}
      data-test="cause-count">${number(group.seen)}<span class="sr-only"> calls</span></a></td>
    <td class="cut"><a class="whole" href=${href("/errors", {}, { ...filter, group: group.id })}><b>
      ${group.program || toolName(group.tool)}</b> ${kindName(group.kind)} <span class="faint">
      ${firstLine(group.message) || group.cause}</span></a></td>
    <td class="right"><${Sparkline} values=${group.values} label=${`${group.seen} calls over time`} width=${90} /></td>
      </tr>`,
    )}</tbody></table>
    ${
      counted.length > ROWS
        ? html`<p class="legend"><a href=${href("/errors", {}, filter)}>
        ${plural(counted.length - ROWS, "more cause")}</a></p>`
        : null
    }`;
}

function Latest({ sessions }) {
  return html`<table class="plain mini latest"><tbody>${sessions.map(
    (row) =>
      html`<tr key=${row.id} class="linked">
    <td class="cut"><a class="whole" href=${href("/session/:id", { id: row.id })}>
      ${firstLine(row.title || row.first_prompt || "") || shortId(row.id)}</a></td>
    <td class="faint hide-phone">${baseName(row.project)}</td><td class="right">${plural(row.calls, "call")}</td>
    <td class=${`right hide-phone ${row.unsuccessful ? "tone-bad" : "faint"}`}>
      ${row.unsuccessful ? `${number(row.unsuccessful)} unsuccessful` : ""}</td>
    <td class="right faint">${ago(parseTime(row.ended ?? row.started))}</td></tr>`,
  )}</tbody></table>`;
}

function Tools({ tools, filter }) {
  const rows = tools
    .filter(({ p95_ms }) => p95_ms !== null)
    .sort((one, other) => other.p95_ms - one.p95_ms)
    .slice(0, ROWS);
  if (!rows.length) return html`<${Empty}>No call has a duration.<//>`;
  return html`<table class="plain mini"><thead><tr><th scope="col">Tool</th><th scope="col" class="right">Calls</th>
    <th scope="col" class="right">Median</th><th scope="col" class="right" title="95 of 100 calls are faster">95%</th>
    </tr></thead>
    <tbody>${rows.map((row) => {
      const link = href("/calls", {}, { ...filter, tool: row.tool, sort: "-duration_ms" });
      return html`<tr key=${row.tool}><td class="cut"><a href=${link} title=${row.tool}>${row.tool}</a></td>
      <td class="right"><a href=${link}>${number(row.calls)}</a></td><td class="right">${duration(row.p50_ms)}</td>
        <td class="right">${duration(row.p95_ms)}</td></tr>`;
    })}</tbody></table>`;
}

function Servers({ servers, filter }) {
  if (!servers.length) return html`<p class="faint">No MCP server was called.</p>`;
  return html`<table class="plain mini"><thead><tr><th scope="col">Server</th><th scope="col">Health</th>
    <th scope="col" class="right">Calls</th><th scope="col" class="right">Unsuccessful</th>
    <th scope="col" class="right hide-phone">Timed out</th>
    <th scope="col" class="right hide-phone" title="The server did not answer">Lost</th>
    <th scope="col" class="right hide-phone">Median</th><th scope="col" class="right">95%</th>
    <th scope="col" class="hide-narrow">Errors</th></tr></thead>
    <tbody>${servers
      .toSorted((one, other) => other.unsuccessful - one.unsuccessful || other.calls - one.calls)
      .slice(0, 12)
      .map((row) => {
        const share = row.unsuccessful / row.calls;
        const [tone, text] =
          share >= 0.25
            ? ["bad", "failing"]
            : share >= 0.05 || row.lost
              ? ["warn", "some failed"]
              : ["good", "healthy"];
        const link = (more) => href("/calls", {}, { ...filter, server: row.server, ...more });
        return html`<tr key=${row.server}><td class="cut"><a href=${link({})}><b>${row.server}</b></a></td><td>
        <span class="badge tone-${tone}">${text}</span></td>
        <td class="right"><a href=${link({})}>${number(row.calls)}</a></td><td class="right">
          ${
            row.unsuccessful
              ? html`<a class="tone-bad" href=${link({ unsuccessful: "yes" })}>
            ${number(row.unsuccessful)}</a> <span class="faint">${Math.round(share * 100)}%</span>`
              : "0"
          }</td>
        <td class="right hide-phone">${
          row.timeouts
            ? html`<a href=${link({ state: "timed_out" })}>
            ${number(row.timeouts)}</a>`
            : "0"
        }</td>
        <td class="right hide-phone">${
          row.lost
            ? html`<a href=${link({ error: "mcp_no_response" })}>${number(row.lost)}
            </a>`
            : "0"
        }</td>
        <td class="right hide-phone">${duration(row.p50_ms)}</td><td class="right">${duration(row.p95_ms)}</td>
        <td class="hide-narrow faint">${Object.entries(row.error_kinds)
          .map(([kind, count]) => `${kindName(kind)} ${number(count)}`)
          .join(", ")}</td></tr>`;
      })}</tbody></table>`;
}
