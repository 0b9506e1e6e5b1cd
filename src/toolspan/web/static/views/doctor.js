// Doctor: findings of all transcripts, or of one session with its repair and a redacted export to share.
// Query: sort and facets (list); session, tab (one session): findings, repair, share.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { apiUrl, download, get, post, useApi } from "../api.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Badge, Facts, clientName } from "../components/badges.js";
import { Answer, Empty, Loading, Problem } from "../components/messages.js";
import { Dialog } from "../components/dialog.js";
import { baseName, dateTime, firstLine, number, parseTime, plural, shortId, words } from "../components/format.js";
import { href } from "../router.js";

export const styles = ["views/doctor.css"];

const CLIENT = {
  accepts: ["accepts it", "good"],
  skips: ["skips lines", "warn"],
  loses: ["loses part of it", "bad"],
  refuses: ["cannot resume it", "bad"],
  unknown: ["unknown", "muted"],
};
const SEVERITY = { error: "bad", warning: "warn", info: "muted" };
const RANK = ["error", "warning", "info"];
const Health = ({ healthy }) =>
  html`<${Badge} tone=${healthy ? "good" : "bad"}>${healthy ? "healthy" : "needs repair"}
  <//>`;
const severe = (row) => row.findings.filter(({ severity }) => severity !== "info");

const FACETS = [
  { key: "health", title: "Health", values: (row) => [row.healthy ? "healthy" : "needs repair"] },
  {
    key: "finding",
    title: "Finding",
    values: (row) => [...new Set(severe(row).map(({ code }) => code))],
    label: words,
  },
  { key: "acceptance", title: "The client", values: (row) => [row.acceptance], label: (value) => CLIENT[value][0] },
  { key: "project", title: "Project", values: (row) => [row.project], label: (value) => baseName(value) || value },
];
const rowHref = (row) => href("/doctor", {}, { session: row.session ?? "" });
const COLUMNS = [
  {
    key: "health",
    title: "Health",
    width: "8rem",
    cell: (row) => html`<${Health} healthy=${row.healthy} />`,
    value: (row) => Number(row.healthy),
  },
  {
    key: "about",
    title: "Transcript",
    cell: (row) => html`<a class="title" href=${rowHref(row)} title=${row.file}>${row.about}</a>`,
    value: (row) => row.about,
  },
  {
    key: "findings",
    title: "Findings",
    width: "24%",
    hide: "phone",
    cell: (row) =>
      html`<span class="faint">${
        severe(row).length ? [...new Set(severe(row).map(({ code }) => words(code)))].join(", ") : "none"
      }</span>`,
  },
  {
    key: "errors",
    title: "Errors",
    width: "5rem",
    align: "right",
    cell: (row) =>
      row.errors ? html`<span class="tone-bad">${number(row.errors)}</span>` : html`<span class="faint">0</span>`,
    value: (row) => row.errors,
  },
  {
    key: "acceptance",
    title: "The client",
    width: "9rem",
    hide: "narrow",
    cell: (row) => html`<span class="tone-${CLIENT[row.acceptance][1]}">${CLIENT[row.acceptance][0]}</span>`,
    value: (row) => row.acceptance,
  },
  {
    key: "lines",
    title: "Lines",
    width: "5.5rem",
    align: "right",
    hide: "narrow",
    cell: (row) => number(row.lines),
    value: (row) => row.lines,
  },
  {
    key: "ended",
    title: "Last active",
    width: "11rem",
    hide: "phone",
    newest: true,
    cell: (row) => dateTime(row.ended),
    value: (row) => row.ended?.getTime(),
  },
];
const phoneRow = (row) =>
  html`<a class="title" href=${rowHref(row)}>${row.about}</a>
  <${Facts} className="faint" items=${[
    html`<${Health} healthy=${row.healthy} />`,
    row.errors > 0 && plural(row.errors, "error"),
    dateTime(row.ended),
  ]} />`;

export default function Doctor(props) {
  return props.query.session
    ? html`<${SessionDoctor} key=${props.query.session} ...${props} />`
    : html`<${Overview} ...${props} />`;
}

function Overview({ query, setQuery, setTitle }) {
  const answer = useApi("doctor", {}, { live: true });
  const sessions = useApi("sessions", { fields: "id,title,first_prompt,files,project,ended" }, { live: true });
  useEffect(() => setTitle("Doctor"), []);
  const rows = useMemo(() => {
    const byFile = new Map(
      (sessions.data ?? []).flatMap((session) => session.files.map((file, n) => [file, { ...session, agent: n > 0 }])),
    );
    return (answer.data ?? []).map((row) => {
      const session = byFile.get(row.file);
      const title = firstLine(session?.title || session?.first_prompt);
      const name = baseName(row.file).replace(/\.jsonl(\.zst)?$|\.json$/, "");
      return {
        ...row,
        session: session?.id,
        project: session?.project,
        ended: parseTime(session?.ended),
        about: session?.agent ? `${title || shortId(session.id)} · ${name}` : title || name,
        errors: row.findings
          .filter(({ severity }) => severity === "error")
          .reduce((total, { count }) => total + count, 0),
      };
    });
  }, [answer.data, sessions.data]);
  const shown = useMemo(() => filterRows(rows, FACETS, query), [rows, choiceKey(FACETS, query)]);
  const bad = shown.filter(({ healthy }) => !healthy).length;
  return html`<${Answer} of=${answer} what="findings">${() =>
    html`<section class="page fill doctor">
    <div class="head"><h1>Doctor</h1><${Facts} items=${[
      html`<span data-test="count">
          ${plural(shown.length, "file")} checked</span>`,
      html`<span data-test="bad" class=${bad ? "tone-bad" : "tone-good"}>
        ${bad ? `${number(bad)} ${bad === 1 ? "needs" : "need"} repair` : "none needs repair"}</span>`,
    ]} /></div>
    <${Facets} rows=${rows} facets=${FACETS} query=${query} setQuery=${setQuery} />
    ${
      shown.length
        ? html`<${Table} label="Transcripts" rows=${shown} columns=${COLUMNS} sort=${query.sort ?? "health"}
          onSort=${(sort) => setQuery({ sort })}
        rowKey=${(row) => row.file} rowHref=${rowHref} phone=${phoneRow} />`
        : html`<${Empty}>No transcript matches these filters.<//>`
    }
  </section>`}<//>`;
}

// One session

const TABS = [
  ["findings", "Findings"],
  ["repair", "Repair"],
  ["share", "Share"],
];

function SessionDoctor({ query, setQuery, setTitle }) {
  const id = query.session;
  const answer = useApi(`session/${encodeURIComponent(id)}/doctor`, {}, { live: true });
  const sessions = useApi("sessions", { fields: "id,title,first_prompt,client,session_ids" });
  const session = sessions.data?.find((row) => row.id === id || row.session_ids.includes(id));
  const about = firstLine(session?.title || session?.first_prompt) || id;
  const tab = TABS.some(([key]) => key === query.tab) ? query.tab : "findings";
  useEffect(() => setTitle(`${tab === "share" ? "Share" : "Doctor"}: ${about}`), [tab, about]);
  return html`<${Answer} of=${answer} what="findings">${(files) =>
    html`<section class="page doctor one">
    <div class="head"><h1 title=${about}>${about}</h1>
      <${Facts} items=${[
        html`<a href=${href("/doctor")}>all transcripts</a>`,
        html`<a href=${href("/session/:id", { id })}>open the session</a>`,
        session && clientName(session.client),
        html`<${Health} healthy=${files.every(({ healthy }) => healthy)} />`,
      ]} />
        </div>
    <div class="segments" role="group" aria-label="Show">
      ${TABS.map(
        ([key, title]) =>
          html`<button key=${key} type="button" aria-pressed=${tab === key}
            onClick=${() => setQuery({ tab: key })}>${title}</button>`,
      )}</div>
    ${
      tab === "findings"
        ? files.map(
            (file) =>
              html`<${Findings} key=${file.file} file=${file}
            several=${files.length > 1} />`,
          )
        : tab === "repair"
          ? html`<${Repair} id=${id} files=${files} />`
          : html`<${Share} id=${id} query=${query} setQuery=${setQuery} />`
    }
  </section>`}<//>`;
}

function Findings({ file, several }) {
  const rows = [...file.findings].sort((one, other) => RANK.indexOf(one.severity) - RANK.indexOf(other.severity));
  return html`<div class="card"><${Facts} items=${[
    several && html`<b>${baseName(file.file)}</b>`,
    several && html`<${Health} healthy=${file.healthy} />`,
    `${number(file.lines)} lines`,
    plural(file.calls, "call"),
    file.malformed > 0 && html`<span class="tone-bad">${number(file.malformed)} malformed</span>`,
    html`<span>the client ${CLIENT[file.acceptance][0]}</span>`,
  ]} />
    ${
      rows.length
        ? html`<div class="scroll" tabindex="0" role="region" aria-label="Findings">
        <table class="plain findings"><thead><tr><th>Severity</th><th>Finding</th><th class="right">Line</th>
        <th class="right">Times</th><th>Meaning</th><th>When the client resumes</th></tr></thead>
      <tbody>${rows.map(
        (row, n) =>
          html`<tr key=${n} data-test="finding"><td><${Badge} tone=${SEVERITY[row.severity]}>
            ${row.severity}<//></td><td class="nowrap">${words(row.code)}</td><td class="right">
            ${row.place ? row.place.split(":").pop() : ""}</td>
        <td class="right">${number(row.count)}</td><td>${row.explanation}</td><td class="faint">
          ${row.on_resume?.now ?? CLIENT[row.acceptance][0]}</td></tr>`,
      )}</tbody></table></div>`
        : html`<p class="faint">Nothing found.</p>`
    }</div>`;
}

const countCodes = (files) => {
  const counts = {};
  for (const finding of files.flatMap((file) => severe(file)))
    counts[finding.code] = (counts[finding.code] ?? 0) + finding.count;
  return counts;
};

function Repair({ id, files }) {
  const [state, setState] = useState({ loading: true });
  const path = `session/${encodeURIComponent(id)}/repair`;
  useEffect(() => {
    let shown = true;
    post(path, { dry_run: true }).then(
      (plan) => shown && setState({ plan }),
      (error) => shown && setState({ error }),
    );
    return () => {
      shown = false;
    };
  }, [path]);
  const carryOut = async () => {
    try {
      const done = await post(path, { dry_run: false });
      const after = await get(`session/${encodeURIComponent(done.session_id)}/doctor`).catch(() => null);
      setState({ plan: state.plan, done, after });
    } catch (error) {
      setState({ ...state, asks: false, error });
    }
  };
  const { plan, done, after, asks } = state;
  if (state.error) return html`<${Problem} error=${state.error} />`;
  if (!plan) return html`<${Loading} what="the repair plan" />`;
  if (!plan.changes.length) return html`<${Empty}>Nothing to repair.<//>`;
  return html`<div class="card">
    ${
      done
        ? html`<h2 data-test="repaired">Repaired: ${number(done.records)} records in the new session</h2>
      <p><a href=${href("/session/:id", { id: done.session_id })}>${done.session_id}</a></p><p class="mono faint">
        ${done.file}</p>
      ${
        done.put_into
          ? html`<p>Move it, and the folder of the same name, to <span class="mono">${done.put_into}
          </span>, where clients look for sessions.</p>`
          : null
      }
      ${done.resume.map((line) => html`<${CopyLine} key=${line} text=${line} />`)}
      ${after ? html`<${BeforeAfter} before=${countCodes(files)} after=${countCodes(after)} />` : null}`
        : html`<p>A repaired copy gets a new id; the original file is not changed, and nothing is run again.</p>
      <div class="actions"><button type="button" class="primary" data-test="repair"
        onClick=${() => setState({ ...state, asks: true })}>Repair …</button></div>`
    }
  </div>
  <div class="card"><h2>${plural(plan.changes.length, "change")}</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Changes"><table class="plain"><thead><tr>
    <th class="right">Line</th><th>Before</th><th>After</th><th class="right">Times</th></tr></thead>
    <tbody>${plan.changes.map(
      (change, n) =>
        html`<tr key=${n} data-test="change"><td class="right">${change.line || ""}
          </td><td class="nowrap">${words(change.code)}</td><td>${change.words}</td><td class="right">
          ${number(change.count)}</td></tr>`,
    )}</tbody></table></div></div>
  ${
    asks
      ? html`<${Dialog} title="Write a repaired copy?" onClose=${() => setState({ ...state, asks: false })}>
    <p>The copy of <span class="mono">${baseName(plan.original)}
      </span> is written to the same folder, with a new id and ${plural(
        plan.changes.length,
        "change",
      )}. The original stays as it is.</p>
    <div class="actions"><span class="spring"></span>
      <button type="button" onClick=${() => setState({ ...state, asks: false })}>Cancel</button>
      <button type="button" class="primary" data-test="confirm" onClick=${carryOut}>Write the copy</button></div><//>`
      : null
  }`;
}

const BeforeAfter = ({ before, after }) =>
  html`<table class="plain before-after"><thead><tr><th>Finding</th>
  <th class="right">Before</th><th class="right">After</th></tr></thead>
  <tbody>${[...new Set([...Object.keys(before), ...Object.keys(after)])].map(
    (code) =>
      html`<tr key=${code}><td>${words(code)}</td><td class="right">${number(before[code] ?? 0)}</td>
    <td class=${`right ${after[code] ? "tone-bad" : "tone-good"}`}>${number(after[code] ?? 0)}</td></tr>`,
  )}</tbody>
      </table>`;

function CopyLine({ text }) {
  const [copied, setCopied] = useState(false);
  return html`<p class="copy"><code>${text}</code> <button type="button" class="quiet"
      onClick=${() => navigator.clipboard?.writeText(text).then(() => setCopied(true))}>${copied ? "copied" : "copy"}
    </button></p>`;
}

const FORMATS = [
  ["html", "Page (HTML)"],
  ["markdown", "Markdown"],
  ["json", "JSON lines"],
  ["csv", "CSV"],
  ["perfetto", "Perfetto trace"],
  ["otlp", "OTLP traces"],
  ["atif", "Trajectory (ATIF)"],
];
const MODES = [
  ["redact", "Replace secrets"],
  ["skeleton", "Keep no text at all"],
  ["all", "Everything as it is"],
];

function Share({ id, query, setQuery }) {
  const form = FORMATS.some(([key]) => key === query.format) ? query.format : "html";
  const mode = MODES.some(([key]) => key === query.mode) ? query.mode : "redact";
  const path = `session/${encodeURIComponent(id)}`;
  const [problem, setProblem] = useState("");
  const preview = useApi(mode === "redact" ? `${path}/redaction` : null);
  const address = apiUrl(`${path}/export`, { format: form, redact: mode === "redact", skeleton: mode === "skeleton" });
  return html`<div class="card"><div class="actions">
      <label>What <select value=${mode} onChange=${(event) => setQuery({ mode: event.target.value })}>
        ${MODES.map(([key, title]) => html`<option key=${key} value=${key}>${title}</option>`)}</select></label>
      <label>As <select value=${form} onChange=${(event) => setQuery({ format: event.target.value })}>
        ${FORMATS.map(([key, title]) => html`<option key=${key} value=${key}>${title}</option>`)}</select></label>
      <button type="button" class="primary" data-test="download"
        onClick=${() => download(address).catch((error) => setProblem(error.message))}>Download</button></div>
    ${problem ? html`<p class="tone-bad" role="alert">${problem}</p>` : null}
    <p class="faint">${
      {
        redact: "Recognition is best effort: read the file before you share it.",
        skeleton: "Structure, states, times, sizes and tool names stay; every text is replaced by its length.",
        all: "Nothing is replaced: secrets in commands and results stay readable.",
      }[mode]
    }</p></div>
    ${
      mode === "redact"
        ? html`<${Answer} of=${preview} what="the replacements">
        ${(rows) => html`<${Replacements} rows=${rows} session=${id} />`}<//>`
        : null
    }`;
}

function Replacements({ rows, session }) {
  const groups = useMemo(() => {
    const found = new Map();
    for (const row of rows) {
      if (!found.has(row.placeholder)) found.set(row.placeholder, { ...row, places: [] });
      found.get(row.placeholder).places.push(row);
    }
    return [...found.values()].sort(
      (one, other) => one.kind.localeCompare(other.kind) || other.places.length - one.places.length,
    );
  }, [rows]);
  if (!rows.length) return html`<${Empty}>Nothing was recognized as secret or personal.<//>`;
  return html`<div class="card"><h2 data-test="replacements">
    ${plural(rows.length, "replacement")} of ${plural(groups.length, "value")}</h2>
    ${groups.map(
      (group, n) =>
        html`<details key=${group.placeholder} class="replaced" open=${n < OPEN_GROUPS}><summary>
          <b class="mono">${group.placeholder}</b> <span class="faint">${group.rule}</span><span class="count">
          ${number(group.places.length)}×</span></summary>
      <ul>${group.places.slice(0, 100).map(
        (place, n) =>
          html`<li key=${n}><code>${mark(place.context || place.placeholder, place.placeholder)}</code>${" "}
        <span class="faint">${place.field}${place.line ? `, line ${place.line}` : ""}</span>
          ${
            place.call
              ? html` <a href=${href("/call/:id", { id: place.call }, { session })}>${shortId(place.call)}</a>`
              : ""
          }</li>`,
      )}
        ${group.places.length > 100 ? html`<li class="faint">and ${number(group.places.length - 100)} more</li>` : null}
          </ul></details>`,
    )}</div>`;
}

const OPEN_GROUPS = 3;
const mark = (text, word) =>
  text.split(word).flatMap((piece, n) => (n ? [html`<mark>${word}</mark>`, piece] : [piece]));
