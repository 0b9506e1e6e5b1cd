// Files: what calls did to files, and the history of one file.
// Query: q, folder, sort (list); path, at, from, show (one file). A point is CALL (after it) or before:CALL.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { post, useApi } from "../api.js";
import { useKeys } from "../keys.js";
import { Facets, choiceKey, filterRows } from "../components/facets.js";
import { Table } from "../components/table.js";
import { Badge, Facts } from "../components/badges.js";
import { Answer, Empty, Problem } from "../components/messages.js";
import { Dialog } from "../components/dialog.js";
import { DiffLines } from "../components/difflines.js";
import { Code } from "../components/rich.js";
import { ago, baseName, clock, dateTime, number, parseTime, plural, shortId } from "../components/format.js";
import { href } from "../router.js";

export const styles = ["views/files.css"];

const folderOf = (path) => path.slice(0, path.length - baseName(path).length).replace(/\/$/, "");
// The folder that a reader would call the project: below a home folder, or the first two parts.
const projectOf = (path) => /^\/(?:home|Users)\/[^/]+\/[^/]+/.exec(path)?.[0] ?? path.split("/").slice(0, 3).join("/");
const kindOf = (row) =>
  row.changes === 0 ? "not changed" : row.last_kind === "deleted" ? "deleted" : row.created ? "new" : "changed";

const FACETS = [
  { key: "folder", title: "Folder", values: (row) => [row.project], label: (value) => baseName(value) || value },
  { key: "kind", title: "Kind", values: (row) => [kindOf(row)] },
  { key: "type", title: "Type", values: (row) => [/\.[^.]+$/.exec(row.name)?.[0] ?? "none"] },
];
const fileHref = (row) => href("/files", {}, { path: row.path });
const lines = (row) =>
  row.changes
    ? html`<span class="tone-good">+${number(row.added)}
    </span> <span class="tone-bad">−${number(row.removed)}</span>
    ${row.known ? "" : html`<span class="faint" title="not all changed lines are known"> ?</span>`}`
    : "";
const COLUMNS = [
  {
    key: "file",
    title: "File",
    cell: (row) =>
      html`<a class="title" title=${row.path} href=${fileHref(row)}>${row.name}
      </a> <span class="faint">${row.dir}</span>`,
    value: (row) => row.path,
  },
  {
    key: "kind",
    title: "",
    width: "5.5rem",
    hide: "phone",
    cell: (row) =>
      kindOf(row) === "changed"
        ? ""
        : html`<${Badge} tone=${{ new: "good", deleted: "bad" }[kindOf(row)] ?? "warn"}>${kindOf(row)}<//>`,
  },
  {
    key: "changes",
    title: "Changes",
    width: "6rem",
    align: "right",
    cell: (row) => number(row.changes),
    value: (row) => row.changes,
  },
  { key: "lines", title: "Lines", width: "9rem", align: "right", cell: lines, value: (row) => row.added + row.removed },
  {
    key: "unsuccessful",
    title: "Unsuccessful",
    width: "6.5rem",
    align: "right",
    cell: (row) =>
      row.unsuccessful
        ? html`<span class="tone-bad">${number(row.unsuccessful)}</span>`
        : html`<span class="faint">0</span>`,
    value: (row) => row.unsuccessful,
  },
  {
    key: "sessions",
    title: "Sessions",
    width: "6rem",
    align: "right",
    hide: "narrow",
    cell: (row) => number(row.sessions.length),
    value: (row) => row.sessions.length,
  },
  {
    key: "last",
    title: "Last change",
    width: "8rem",
    newest: true,
    cell: (row) => html`<span title=${dateTime(row.end)}>${ago(row.end)}</span>`,
    value: (row) => row.last,
  },
];
const phoneRow = (row) =>
  html`<a class="title" href=${fileHref(row)}>${row.name}</a>
  <${Facts} className="faint" items=${[
    lines(row),
    ago(row.end),
    row.unsuccessful > 0 && html`<span class="tone-bad">${row.unsuccessful} unsuccessful</span>`,
    baseName(row.project),
  ]} />`;

export default function Files(props) {
  return props.query.path
    ? html`<${FileHistory} key=${props.query.path} ...${props} />`
    : html`<${FileList} ...${props} />`;
}

function FileList({ query, setQuery, setTitle }) {
  const answer = useApi("files", { limit: 0 }, { live: true });
  useEffect(() => setTitle("Files"), []);
  const rows = useMemo(
    () =>
      (answer.data ?? []).map((row) => ({
        ...row,
        name: baseName(row.path),
        dir: folderOf(row.path),
        project: projectOf(row.path),
        end: parseTime(row.last),
      })),
    [answer.data],
  );
  const word = (query.q ?? "").toLowerCase();
  const found = useMemo(
    () => (word ? rows.filter(({ path }) => path.toLowerCase().includes(word)) : rows),
    [rows, word],
  );
  const shown = useMemo(() => filterRows(found, FACETS, query), [found, choiceKey(FACETS, query)]);
  const sum = (key) => shown.reduce((total, row) => total + row[key], 0);
  return html`<${Answer} of=${answer} what="files">${() =>
    html`<section class="page fill files">
    <div class="head"><h1>Files</h1><${Facts} items=${[
      html`<span data-test="count">${
        shown.length === rows.length
          ? plural(rows.length, "file")
          : `${number(shown.length)} of ${plural(rows.length, "file")}`
      }</span>`,
      html`<span><span class="tone-good">+${number(sum("added"))}
        </span> <span class="tone-bad">−${number(sum("removed"))}</span> lines</span>`,
      sum("unsuccessful") > 0 && html`<span class="tone-bad">${number(sum("unsuccessful"))} unsuccessful</span>`,
    ]} />
        </div>
    <${Facets} rows=${found} facets=${FACETS} query=${query} setQuery=${setQuery}>
      <input type="search" class="narrow" aria-label="Part of the path" placeholder="Part of the path" value=${
        query.q ?? ""
      } onInput=${(event) => setQuery({ q: event.target.value || null })} />
    <//>
    ${
      shown.length
        ? html`<${Table} label="Files" rows=${shown} columns=${COLUMNS} sort=${query.sort ?? "-last"}
          onSort=${(sort) => setQuery({ sort })}
        rowKey=${(row) => row.path} rowHref=${fileHref} phone=${phoneRow} />`
        : html`<${Empty}>${rows.length ? "No file matches these filters." : "No call in these sessions changed a file."}
        <//>`
    }
  </section>`}<//>`;
}

// One file

const pointName = ({ call, side }) => (side === "before" ? `before:${call}` : call);
const TONES = { exact: "good", derived: "good", doubtful: "warn", partial: "warn", unknown: "bad" };
const MEANINGS = {
  exact: "a call recorded this content",
  derived: "computed from recorded contents and edits",
  doubtful: "something may have changed it in between",
  partial: "only some lines are known",
  unknown: "nothing recorded tells it",
};
const Certainty = ({ point }) =>
  html`<${Badge} tone=${TONES[point.confidence]} title=${MEANINGS[point.confidence]}>
  ${point.confidence}<//>`;
const LANGUAGES = {
  py: "python",
  js: "javascript",
  ts: "typescript",
  md: "markdown",
  sh: "bash",
  yml: "yaml",
  rs: "rust",
  rb: "ruby",
  htm: "html",
};

function FileHistory({ query, setQuery, setTitle }) {
  const answer = useApi("file", { path: query.path }, { live: true });
  useEffect(() => setTitle(baseName(query.path)), []);
  return html`<${Answer} of=${answer} what="the history">
    ${(data) => html`<${Points} data=${data} query=${query} setQuery=${setQuery} />`}<//>`;
}

function Points({ data, query, setQuery }) {
  const { path, points } = data;
  const changes = useMemo(() => new Map(data.changes.map((change) => [change.call, change])), [data]);
  const find = (name) => points.findIndex((point) => pointName(point) === name);
  const index = (name, otherwise) => {
    // the point before it
    const found = find(name) < 0 && name?.startsWith("before:") ? find(name.slice("before:".length)) - 1 : find(name);
    return found < 0 ? otherwise : found;
  };
  const at = index(query.at, points.length - 1);
  const show = query.show ?? "content";
  const from = index(query.from, Math.max(0, at - 1));
  const point = points[at];
  const list = useRef(null);
  const go = (n) => setQuery({ at: pointName(points[Math.max(0, Math.min(points.length - 1, n))]) });
  useKeys({
    j: { label: "next change", run: () => go(at + 1) },
    k: { label: "previous change", run: () => go(at - 1) },
    ArrowRight: { label: "next change", run: () => go(at + 1) },
    ArrowLeft: { label: "previous change", run: () => go(at - 1) },
    r: { label: "restore this content", run: () => document.querySelector("[data-key=restore]")?.click() },
  });
  useEffect(() => list.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }), [at]);
  if (!points.length)
    return html`<section class="page"><div class="head"><h1>${baseName(path)}</h1></div>
    <${Empty}>No successful call changed this file.<//></section>`;
  const first = parseTime(data.changes[0]?.at);
  const last = parseTime(data.changes.at(-1)?.at);
  return html`<section class="page fill file">
    <div class="head"><h1 title=${path}>${baseName(path)}</h1>
      <${Facts} items=${[
        html`<a href=${href("/files")}>all files</a>`,
        html`<span class="mono">${folderOf(path)}</span>`,
        html`<span data-test="changes">${plural(data.changes.length, "change")}</span>`,
        first && (first < last ? `${dateTime(first)} to ${dateTime(last)}` : dateTime(first)),
      ]} /></div>
    <div class="slide"><label for="point">${at + 1} of ${points.length}</label>
      <input id="point" type="range" min="0" max=${points.length - 1} step="1" value=${at} list="points"
        aria-valuetext=${pointText(point, changes)} onInput=${(event) => go(Number(event.target.value))} /></div>
    <div class="columns">
      <ol class="points" ref=${list} aria-label="Points in time">
        ${points.map(
          (one, n) =>
            html`<li key=${pointName(one)}>
        <a href=${href("/files", {}, { ...query, at: pointName(one) })} aria-current=${n === at ? "true" : undefined}>
          <${PointRow} point=${one} change=${changes.get(one.call)} /></a></li>`,
        )}</ol>
      <div class="at" data-test="at">
        <div class="bar"><div class="segments" role="group" aria-label="Show">
          ${[
            ["content", "Content"],
            ["change", "This change"],
            ["compare", "Compare"],
            ["blame", "Who wrote it"],
          ].map(
            ([key, title]) =>
              html`<button key=${key} type="button"
            aria-pressed=${show === key} disabled=${key === "change" && point.side === "before"}
              onClick=${() => setQuery({ show: key })}>${title}</button>`,
          )}</div>
          ${
            show === "compare"
              ? html`<label>with <select value=${pointName(points[from])}
                onChange=${(event) => setQuery({ from: event.target.value })}>
              ${points.map(
                (one, n) =>
                  html`<option key=${n} value=${pointName(one)}>${pointText(one, changes)}
                  </option>`,
              )}</select></label>`
              : null
          }
          <span class="spring"></span><${Certainty} point=${point} /><${Restore} path=${path} point=${point} /></div>
        <p class="faint reasons"><${Reasons} point=${point} changes=${changes} /></p>
        ${
          show === "change" && point.side === "after"
            ? html`<${DiffLines} diff=${changes.get(point.call)?.diff ?? ""} />`
            : show === "compare"
              ? html`<${Compare} path=${path} from=${points[Math.min(from, at)]}
              to=${points[Math.max(from, at)]} />`
              : show === "blame" && typeof point.content === "string"
                ? html`<${Blame} path=${path} point=${point} />`
                : html`<${Content} path=${path} point=${point} />`
        }
        ${
          data.disagreements.length
            ? html`<details class="faint"><summary>
            ${plural(data.disagreements.length, "disagreement")} in the records</summary>
            ${data.disagreements.map((one, n) => html`<p key=${n}>${one.words}</p>`)}</details>`
            : null
        }
      </div></div></section>`;
}

const pointText = (point, changes) => {
  const change = changes.get(point.call);
  return point.side === "before"
    ? "before the first change"
    : `after ${change?.tool ?? "?"} ${dateTime(parseTime(change?.at))}`;
};

// The reasons name calls by their ids; a link with the time says more.
function Reasons({ point, changes }) {
  return point.reasons
    .join("; ")
    .split(/([^\s;,]+)/)
    .map((word) => {
      const change = changes.get(word);
      if (change)
        return html`<a href=${href("/call/:id", { id: word }, { session: change.session })}
        title=${word}>at ${clock(parseTime(change.at))}</a>`;
      return /^(toolu|call)_\w{8,}$/.test(word)
        ? html`<a href=${href("/call/:id", { id: word })} title=${word}>
      ${word.slice(0, 14)}…</a>`
        : word;
    });
}

function PointRow({ point, change }) {
  if (point.side === "before")
    return html`<span class="what">Before the first change</span>
    <span class="dot tone-${TONES[point.confidence]}" title=${point.confidence}>●</span>`;
  return html`<span class="what"><b>${change?.kind ?? ""}</b> ${change?.tool ?? ""}
    ${
      change && change.added !== null
        ? html` <span class="tone-good">+${change.added}
        </span> <span class="tone-bad">−${change.removed}</span>`
        : ""
    }</span>
    <span class="dot tone-${TONES[point.confidence]}" title=${point.confidence}>●<span class="sr-only">
      ${point.confidence}</span></span>
    <span class="faint when">${[
      dateTime(parseTime(change?.at)),
      `session ${shortId(change?.session)}`,
      change?.agent && `agent ${shortId(change.agent)}`,
    ]
      .filter(Boolean)
      .join(" · ")}</span>`;
}

function Content({ path, point }) {
  if (point.exists === false) return html`<${Empty}>The file did not exist.<//>`;
  if (point.content === null && !point.parts.length) return html`<${Empty}>The content at this point is not known.<//>`;
  const text = point.content ?? knownParts(point.parts);
  const ending = /\.(\w+)$/.exec(path)?.[1]?.toLowerCase();
  return html`<${Code} key=${text} text=${text} language=${LANGUAGES[ending] ?? ending} />`;
}

const knownParts = (parts) =>
  [...parts]
    .sort((one, other) => one.start - other.start)
    .map(({ start, lines: known }) => `… from line ${start}:\n${known.join("\n")}`)
    .join("\n");

function Compare({ path, from, to }) {
  const answer = useApi("file/diff", { path, from: pointName(from), to: pointName(to) });
  return html`<${Answer} of=${answer} what="the difference">
    ${({ diff, from: one, to: other }) =>
      html`<p class="faint">
        from ${one.confidence} to ${other.confidence} content</p><${DiffLines} key=${diff} diff=${diff} />`}<//>`;
}

// Each line with the call that wrote it; of neighbouring lines by the same call, the first one names it.
function Blame({ path, point }) {
  const answer = useApi("file/blame", { path, at: pointName(point) });
  return html`<${Answer} of=${answer} what="who wrote it">
    ${(rows) =>
      html`<ol class="blame" data-test="blame">${rows.map(
        (row, n) =>
          html`<li key=${n}><span class="by">
        ${row.call === rows[n - 1]?.call && n ? "" : html`<${Writer} row=${row} />`}
        </span><code>${row.text || " "}</code></li>`,
      )}</ol>`}<//>`;
}

const Writer = ({ row }) =>
  row.call
    ? html`<a href=${href("/call/:id", { id: row.call }, { session: row.session })} title=${row.prompt ?? ""}>
      ${[dateTime(parseTime(row.at)), row.certainty === "likely" && "likely", row.model ?? row.client]
        .filter(Boolean)
        .join(" · ")}</a> <a class="faint" href=${href("/session/:id", { id: row.session })}>${
        row.prompt?.split("\n")[0] || `session ${shortId(row.session)}`
      }</a>`
    : html`<span class="faint">by hand or unknown</span>`;

function Restore({ path, point }) {
  const [state, setState] = useState(null);
  const ask = async (body) => post("file/restore", { path, call: point.call, side: point.side, ...body });
  const attempt = async (body, then) => {
    try {
      setState(then(await ask(body)));
    } catch (error) {
      setState({ error });
    }
  };
  const force = point.confidence === "doubtful";
  const plan = state?.plan;
  return html`<button type="button" data-key="restore" disabled=${
    point.confidence === "unknown" || point.confidence === "partial"
  } title="Write this content to the file (r)"
      onClick=${() => {
        setState({ busy: true });
        attempt({ dry_run: true, force }, (found) => ({ plan: found }));
      }}>
        Restore …</button>
    ${
      state && !state.busy
        ? html`<${Dialog} wide title=${state.done ? "Restored" : `Restore ${baseName(path)}?`}
          onClose=${() => setState(null)}>
      ${state.error ? html`<${Problem} error=${state.error} />` : null}
      ${
        state.done
          ? html`<p data-test="restored"><span class="mono">${state.done.target}
          </span>: ${{ write: "written", create: "created", delete: "deleted" }[state.done.action]}.</p>
          ${
            state.done.kept
              ? html`<p>The file that was there is kept as <span class="mono">${state.done.kept}
              </span>.</p>`
              : null
          }`
          : null
      }
      ${
        plan
          ? html`<p data-test="target"><b class="mono">${plan.target}</b>${
              plan.target === plan.path
                ? null
                : html` <span class="faint">through the link <span class="mono">${plan.path}</span></span>`
            }</p><p>
          <${Certainty} point=${point} /> ${
            plan.action === "nothing"
              ? "The file already has this content."
              : {
                  write: "The file on disk would change:",
                  create: "The file would be created:",
                  delete: "The file did not exist at that time and would be deleted:",
                }[plan.action]
          }</p>
        ${plan.action === "nothing" ? null : html`<${DiffLines} diff=${plan.diff} />`}
        ${
          plan.action === "write" || plan.action === "delete"
            ? html`<p class="faint">The file that is there now is kept beside it
            as ${baseName(plan.target)}.before-restore.</p>`
            : null
        }`
          : null
      }
      <div class="actions"><span class="spring"></span><button type="button" onClick=${() => setState(null)}>
        ${plan && plan.action !== "nothing" ? "Cancel" : "Close"}</button>
        ${
          plan && plan.action !== "nothing"
            ? html`<button type="button" class="primary" data-test="confirm"
              onClick=${() => attempt({ dry_run: false, force }, (done) => ({ done }))}>
            ${plan.action === "delete" ? "Delete it" : "Restore"}</button>`
            : null
        }</div><//>`
        : null
    }`;
}
