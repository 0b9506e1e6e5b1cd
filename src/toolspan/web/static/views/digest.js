// Digest: a week, or another period, on one page, compared with the period before it that is as long.
// Query: days (week is the one since Monday), since, until.
import { html, useEffect } from "../lib.js";
import { useApi } from "../api.js";
import { Answer, Empty } from "../components/messages.js";
import { CustomPeriod, PeriodChoice, PeriodMark, withPeriod } from "../components/period.js";
import {
  baseName,
  change,
  cost,
  dateTime,
  duration,
  firstLine,
  number,
  parseTime,
  plural,
  short,
} from "../components/format.js";
import { href } from "../router.js";

export const styles = ["views/overview.css"];

const PERIODS = [
  ["7", "7 days"],
  ["week", "This week"],
  ["yesterday", "Yesterday"],
  ["30", "30 days"],
  ["quarter", "Quarter"],
];

export default function Digest({ query: address, setQuery, setTitle }) {
  useEffect(() => setTitle("Digest"), []);
  const { days = address.since || address.until ? undefined : "7" } = address;
  const query = withPeriod({ ...address, days });
  const answer = useApi("digest", { since: query.since, until: query.until }, { live: true });
  return html`<section class="page overview">
    <div class="head"><h1>Digest</h1>
      <${PeriodChoice} value=${days} choices=${PERIODS}
        onChange=${(value) => setQuery({ days: value === "7" ? null : value, since: null, until: null })} />
      <${CustomPeriod} query=${query} setQuery=${setQuery} /><${PeriodMark} query=${query} setQuery=${setQuery} /></div>
    <${Answer} of=${answer} what="the digest">${(data) => html`<${Report} data=${data} />`}<//></section>`;
}

function Report({ data }) {
  const filter = { since: data.since, until: data.until };
  const calls = (more) => href("/calls", {}, { ...filter, ...more });
  const tiles = [
    ["Sessions", number(data.sessions), "", href("/sessions", {}, filter)],
    ["Calls", number(data.calls), change(data.calls, data.calls_before), calls()],
    [
      "Unsuccessful",
      number(data.unsuccessful),
      change(data.unsuccessful, data.unsuccessful_before),
      calls({ unsuccessful: "yes" }),
    ],
    ["Cost", cost(data.cost_usd) || "none", change(data.cost_usd, data.cost_before_usd), href("/usage", {}, filter)],
    [
      "Waiting for permission",
      duration(data.permission_ms),
      change(data.permission_ms, data.permission_before_ms),
      calls({ sort: "-duration_ms" }),
    ],
  ];
  return html`<p class="summary period" data-test="period">
      ${dateTime(parseTime(data.since))} to ${dateTime(parseTime(data.until))}, compared with the time before</p>
    <div class="tiles">${tiles.map(
      ([title, value, note, link]) =>
        html`<a key=${title} class="card tile" href=${link}>
      <span class="name">${title}</span><span class="figure">${value}</span>
      ${note ? html`<span class="note-small">${note}</span>` : null}</a>`,
    )}</div>
    <div class="board">
      <${Causes} title="Worst causes" causes=${data.causes} filter=${filter} steps className="full"
        empty="All calls succeeded." />
      <${Causes} title="New causes" causes=${data.new} filter=${filter} className="wide" empty="No new cause." />
      <${Rows} title="Cost per project" head=${["Project", "Cost", "Change"]} empty="No cost is recorded."
        rows=${data.projects.map((row) => [
          html`<a href=${href("/usage", {}, { ...filter, project: row.project })}
            title=${row.project}>${baseName(row.project) || row.project}</a>`,
          cost(row.cost_usd),
          row.cost_before_usd ? change(row.cost_usd, row.cost_before_usd) : "new",
        ])} />
      <${Rows} title="Slow hooks" head=${["Hook", "Runs", "Total"]} empty="No hook took time."
        rows=${data.hooks.map((row) => [
          html`<a class="mono" href=${href("/lists", {}, { ...filter, about: "hooks" })}
            title=${row.command}>${firstLine(row.command) || row.point}</a>`,
          number(row.runs),
          duration(row.total_ms),
        ])} />
      <${Rows} title="Filled the context" head=${["Tool", "Results", "Tokens sent"]} empty="No result is recorded."
        rows=${data.context.map((row) => [
          html`<a href=${calls({ tool: row.tool })}>${row.tool}</a>`,
          number(row.calls),
          short(row.resent_tokens),
        ])} />
      <${Causes} title="Gone" causes=${data.gone} filter=${{}} empty="No cause is gone." />
    </div>`;
}

function Causes({ title, causes, filter, steps = false, className = "", empty }) {
  return html`<section class=${`card ${className}`}><h2>${title}</h2>
    ${
      causes.length
        ? html`<ul class="steps">${causes.map(
            (cause) =>
              html`<li key=${cause.group}>
      <a href=${href("/errors", {}, { ...filter, group: cause.group })}><b>${cause.who}</b> ${cause.kind}</a>${" "}
      <span class="faint">${plural(cause.count, "call")}${
        cause.lost_ms ? `, ${duration(cause.lost_ms)} lost` : ""
      }${cause.message ? ` · ${firstLine(cause.message)}` : ""}</span>
      ${steps ? html`<span class="step"><${Step} text=${cause.step} /></span>` : null}</li>`,
          )}</ul>`
        : html`<${Empty}>${empty}<//>`
    }
  </section>`;
}

// Advice that names a command for a call links to the call instead.
function Step({ text }) {
  const [, advice, id] = /^(.*): toolspan show (\S+)$/.exec(text) ?? [];
  return id ? html`<a href=${href("/call/:id", { id })}>${advice}</a>` : text;
}

function Rows({ title, head, rows, empty }) {
  return html`<section class="card"><h2>${title}</h2>
    ${
      rows.length
        ? html`<table class="plain mini"><thead><tr>${head.map(
            (name, n) =>
              html`<th key=${name} scope="col"
        class=${n ? "right" : ""}>${name}</th>`,
          )}</tr></thead>
      <tbody>${rows.map(
        (cells, row) =>
          html`<tr key=${row}>${cells.map(
            (cell, n) =>
              html`<td key=${n}
        class=${n ? "right" : "cut"}>${cell}</td>`,
          )}</tr>`,
      )}</tbody></table>`
        : html`<${Empty}>${empty}<//>`
    }
          </section>`;
}
