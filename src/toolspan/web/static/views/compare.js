// Compare: two sessions side by side, and where they part. Query: a, b (session ids).
import { html, useEffect, useMemo } from "../lib.js";
import { useApi } from "../api.js";
import { Facts, StateBadge, clientName, usageTokens } from "../components/badges.js";
import { Answer, Empty } from "../components/messages.js";
import { SessionPicker } from "../components/picker.js";
import {
  baseName,
  cost,
  dateTime,
  duration,
  firstLine,
  number,
  parseTime,
  short,
  shortId,
  words,
} from "../components/format.js";
import { kindName } from "../components/words.js";
import { useKeys } from "../keys.js";
import { href } from "../router.js";

export const styles = ["views/compare.css"];

const FIELDS = "id,session_ids,title,first_prompt,project,ended,started,calls,models,client,git_branch";
const TIMES = ["wall", "model", "tools", "permission", "hooks", "idle", "nothing_recorded"];
const TOKENS = {
  input_tokens: "input",
  output_tokens: "output",
  cache_creation_input_tokens: "cache write",
  cache_read_input_tokens: "cache read",
};
const MAX_LISTED = 30;

export default function Compare({ query, setQuery, setTitle }) {
  useEffect(() => setTitle("Compare"), []);
  const sessions = useApi("sessions", { fields: FIELDS });
  const both = Boolean(query.a && query.b);
  const answer = useApi(both ? "compare" : null, { a: query.a, b: query.b });
  const rows = sessions.data ?? [];
  const find = (id) => rows.find((row) => row.id === id || row.session_ids.includes(id));
  const newest = rows
    .filter(({ calls }) => calls)
    .toSorted((one, other) => ((one.ended ?? "") < (other.ended ?? "") ? 1 : -1))
    .slice(0, 2);
  const swap = () => setQuery({ a: query.b, b: query.a });
  useKeys({ x: { label: "swap the two sessions", run: () => both && swap() } });
  return html`<section class="page compare"><div class="head"><h1>Compare</h1></div>
    <div class="choice">
      <${SessionPicker} id="a" label="A" sessions=${rows} value=${query.a}
        onChoose=${(a) => setQuery({ a }, { replace: false })} />
      <button type="button" class="quiet icon" aria-label="Swap the two sessions" title="Swap (x)" disabled=${!both}
        onClick=${swap}>⇄</button>
      <${SessionPicker} id="b" label="B" sessions=${rows} value=${query.b}
        onChoose=${(b) => setQuery({ b }, { replace: false })} />
    </div>
    ${
      both
        ? html`<${Answer} of=${answer} what="the comparison">
        ${(data) =>
          html`<${Comparison} data=${data} ids=${[query.a, query.b]}
            infos=${[find(query.a), find(query.b)]} />`}<//>`
        : html`<${Empty}>Choose two sessions, here or with ⇄ in the <a href="/sessions">list of sessions</a>${
            newest.length === 2
              ? html`, or <a data-test="last-two" href=${href("/compare", {}, { a: newest[1].id, b: newest[0].id })}>
          compare the last two</a>`
              : null
          }.<//>`
    }
  </section>`;
}

function Comparison({ data, ids, infos }) {
  const { a, b, difference, parting } = data;
  const calls = (id, more) => href("/calls", {}, { session: id, ...more });
  const tools = useMemo(() => keysOf(a.tools, b.tools), [data]);
  const kinds = useMemo(() => keysOf(a.error_kinds, b.error_kinds), [data]);
  const files = useMemo(() => keysOf(a.files, b.files), [data]);
  return html`
    <div class="sides">${[a, b].map(
      (side, n) =>
        html`<div key=${n} class="card side">
      <h2><span class="letter">${"AB"[n]}</span><a href=${href("/session/:id", { id: ids[n] })}>
        ${firstLine(infos[n]?.title || infos[n]?.first_prompt) || shortId(ids[n])}</a></h2>
      <${Facts} items=${[
        infos[n] && clientName(infos[n].client),
        baseName(infos[n]?.project),
        dateTime(parseTime(side.time.began)),
        side.models.join(", "),
      ]} /></div>`,
    )}</div>
    ${
      parting
        ? html`<${Parting} parting=${parting} ids=${ids} />`
        : html`<p class="card parting-none">These sessions have no first steps in common.</p>`
    }
    <div class="tables">
      <${Rows} title="Outcome" rows=${[
        ["calls", a.calls, b.calls, number, [calls(ids[0]), calls(ids[1])]],
        [
          "unsuccessful",
          a.unsuccessful,
          b.unsuccessful,
          number,
          [calls(ids[0], { unsuccessful: "yes" }), calls(ids[1], { unsuccessful: "yes" })],
          "less",
        ],
        ["files changed", a.files_changed, b.files_changed, number],
        ["lines added", a.lines_added, b.lines_added, number],
        ["lines removed", a.lines_removed, b.lines_removed, number],
        ["requests", a.requests, b.requests, number],
        ["cost", a.cost_usd, b.cost_usd, cost, null, "less", difference.cost_usd],
      ]} />
      <${Rows} title="Time" rows=${TIMES.filter((name) => a.time[`${name}_ms`] || b.time[`${name}_ms`]).map((name) => [
        words(name),
        a.time[`${name}_ms`],
        b.time[`${name}_ms`],
        duration,
        null,
        name === "idle" ? null : "less",
      ])} />
      <${Rows} title="Tokens" rows=${[
        ...Object.entries(TOKENS).map(([key, name]) => [name, a.tokens[key], b.tokens[key], short, null, "less"]),
        ["all", usageTokens(a.tokens), usageTokens(b.tokens), short, null, "less"],
      ]} />
      <${Rows} title="Tools" rows=${tools.map((name) => [
        name,
        a.tools[name] ?? 0,
        b.tools[name] ?? 0,
        number,
        [calls(ids[0], { tool: name }), calls(ids[1], { tool: name })],
      ])} />
      <${Rows} title="Unsuccessful calls" rows=${kinds.map((name) => [
        kindName(name),
        a.error_kinds[name] ?? 0,
        b.error_kinds[name] ?? 0,
        number,
        [calls(ids[0], { error: name }), calls(ids[1], { error: name })],
        "less",
      ])} empty="All calls succeeded." />
      <${Rows} title="Changes of files" rows=${files.map((name) => [
        name,
        a.files[name] ?? 0,
        b.files[name] ?? 0,
        number,
      ])} empty="No file was changed." />
    </div>`;
}

const keysOf = (one, other) =>
  [...new Set([...Object.keys(one), ...Object.keys(other)])].sort(
    (x, y) => (other[y] ?? 0) + (one[y] ?? 0) - (other[x] ?? 0) - (one[x] ?? 0),
  );

// rows: [name, a, b, format, links, "less" if less is better, difference]
function Rows({ title, rows, empty }) {
  return html`<section class="card"><h2>${title}</h2>
    ${
      rows.length
        ? html`<table class="plain pairs"><thead><tr><th scope="col"><span class="sr-only">${title}</span>
        </th><th scope="col" class="right">A</th><th scope="col" class="right">B</th>
        <th scope="col" class="right">Difference</th></tr></thead>
    <tbody>${rows.slice(0, MAX_LISTED).map(([name, a, b, format, links, better, given]) => {
      const step = given ?? (a === null || b === null ? null : b - a);
      const tone = !step || !better ? "" : step < 0 ? "tone-good" : "tone-bad";
      const cell = (value, n) =>
        links && value
          ? html`<a href=${links[n]}>${format(value)}</a>`
          : value === null || value === undefined
            ? html`<span class="faint">?</span>`
            : format(value);
      return html`<tr key=${name}><th scope="row" title=${name}>
        ${name.startsWith("/") ? name.split("/").slice(-2).join("/") : name}</th><td class="right">${cell(a, 0)}</td>
        <td class="right">${cell(b, 1)}</td>
        <td class="right ${tone}">${
          step === null
            ? ""
            : step === 0
              ? html`<span class="faint">=</span>`
              : `${step > 0 ? "+" : "−"}${format(Math.abs(step))}`
        }</td></tr>`;
    })}</tbody></table>${
      rows.length > MAX_LISTED ? html`<p class="faint">${number(rows.length - MAX_LISTED)} more</p>` : null
    }`
        : html`<p class="faint">${empty}</p>`
    }</section>`;
}

function Parting({ parting, ids }) {
  const place = (step, n) =>
    href("/session/:id", { id: ids[n] }, step.call ? { call: step.call } : { line: step.line });
  const show = (step, n, end) =>
    step
      ? html`<a class="step" href=${place(step, n)}><span>
      ${step.state ? html`<${StateBadge} state=${step.state} text=${false} /> ` : null}<b>${step.tool ?? "prompt"}</b>
      </span> <span class="mono">${firstLine(step.text)}</span></a>`
      : html`<span class="step faint">${end}</span>`;
  return html`<section class="card parting"><h2>Where they part</h2>
    <p>Both begin with the same ${number(parting.shared_steps)} ${
      parting.shared_steps === 1 ? "step" : "steps"
    }; the last one is</p>
    ${show(parting.last_shared, 0)}
    ${
      parting.first_different_result
        ? html`<p class="tone-warn">The same call had another result before:</p>
        ${show(parting.first_different_result, 0)}`
        : null
    }
    <div class="fork"><div><h3>then A</h3>${show(parting.a, 0, "ends here")}</div><div><h3>then B</h3>
      ${show(parting.b, 1, "ends here")}</div></div>
  </section>`;
}
