// Call: one call in detail, as `toolspan show CALL` and `toolspan why CALL`. Query: session.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { apiUrl, useApi } from "../api.js";
import { embedded, embeddedCall } from "../embedded.js";
import { CallInput, CallResult, Field, pathOf, shellCommand } from "../components/call-body.js";
import { Badge, Facts, StateBadge, clientName } from "../components/badges.js";
import { Diff } from "../components/diff.js";
import { dateTime, duration, firstLine, number, oneLine, parseTime, plural, words } from "../components/format.js";
import { Answer } from "../components/messages.js";
import { Code, Markdown } from "../components/rich.js";
import { STATES, WORDS, kindName, recoveryName } from "../components/words.js";
import { useKeys } from "../keys.js";
import { href, navigate } from "../router.js";

export const styles = ["views/call.css"];

const callHref = (row, session) => href("/call/:id", { id: row.id }, { session: row.session ?? session });
const callPath = (id, rest = "") => `call/${encodeURIComponent(id)}${rest}`;

export default function Call({ params, query, setTitle }) {
  const answer = useApi(callPath(params.id), { session: query.session });
  const data = answer.data;
  const session = query.session ?? data?.call.session;
  const more = useRecords(params.id, session, data);
  // as in Calls
  const named = useApi("sessions", { fields: "id,title,first_prompt,project" }).data?.find(({ id }) => id === session);
  useEffect(() => setTitle(data ? `${data.call.tool ?? "Call"} ${oneLine(data.call.target, 60)}` : "Call"), [data]);
  const go = (id) => id && navigate(href("/call/:id", { id }, { session }));
  useKeys({
    j: { label: "next call", run: () => go(data?.after) },
    k: { label: "previous call", run: () => go(data?.before) },
    Escape: {
      label: "up to the session",
      run: () => session && navigate(href("/session/:id", { id: session }, { call: params.id })),
    },
    u: {
      label: "up to the session",
      run: () => session && navigate(href("/session/:id", { id: session }, { call: params.id })),
    },
  });
  return html`<${Answer} of=${answer} what="the call">${(found) =>
    html`<section class="page call-page">
    <p class="crumbs"><a href=${href("/session/:id", { id: session ?? "" }, { call: found.call.id })}
      title="u">← Session${named ? `: ${firstLine(named.title || named.first_prompt, 80)}` : ""}</a>
      ${
        found.before
          ? html`<a href=${href("/call/:id", { id: found.before }, { session })}
            title="k">‹ previous call</a>`
          : null
      }
      ${
        found.after
          ? html`<a href=${href("/call/:id", { id: found.after }, { session })} title="j">next call ›</a>`
          : null
      }</p>
    <${CallDetail} data=${found} more=${more} session=${session} heading="h1" key=${found.call.id} />
  </section>`}<//>`;
}

// The same in the panel of a session: <CallPanel id session row model />; `row` is shown until the rest is there.
export function CallPanel({ id, row, model, session, actions }) {
  const answer = useApi(embedded ? null : callPath(id), { session });
  const found = useMemo(() => (embedded && row ? embeddedCall(row, model) : undefined), [row]) ?? answer.data;
  const data = found?.call.id === id ? found : undefined;
  const more = useRecords(id, session, data);
  return html`<div class="panel-actions">${actions}</div>
    ${
      !data && !answer.error && row
        ? html`<h2 class="call-title"><span class="tool">${row.tool}
        </span> <span class="mono target">${row.target}</span></h2>
      <${Facts} items=${[
        html`<${StateBadge} state=${row.state} />`,
        row.error_kind && kindName(row.error_kind),
        duration(row.duration_ms),
      ]} />${row.message ? html`<p class="mono">${row.message}</p>` : null}`
        : null
    }
    <${Answer} of=${{ ...answer, data }} what="the call">
      ${(found) => html`<${CallDetail} data=${found} more=${more} session=${session} heading="h2" key=${id} />`}<//>`;
}

// The records of a call. perf: if the session is known, they load together with the call.
function useRecords(id, session, data) {
  const path = callPath(id, "/records");
  const answer = useApi(!embedded && (session || data) ? path : null, { session });
  return answer.url === apiUrl(path, { session }) ? answer : { ...answer, data: undefined, error: null };
}

function CallDetail({ data, more, session, heading }) {
  const { call } = data;
  const flags = ["background", "deferred", "synthetic", "ambiguous", "truncated"].filter((name) => call[name]);
  return html`<article class="call-detail">
    <header><${heading} class="call-title"><span class="tool">${call.tool ?? "Orphan result"}
      </span> <span class="mono target">${oneLine(call.target, 300)}</span><//>
      <${Facts} items=${[
        html`<${StateBadge} state=${call.state} />`,
        call.error_kind && kindName(call.error_kind),
        dateTime(parseTime(call.requested)),
        duration(call.duration_ms),
        call.exit_code !== null && `exit ${call.exit_code}`,
        clientName(call.client),
        call.agent && `subagent ${call.agent}`,
        call.branch !== "active" && words(call.branch),
        ...flags.map((flag) => html`<${Badge}>${flag}<//>`),
      ]} />
      <${Copies} data=${data} session=${session} /></header>
    ${call.state !== "succeeded" ? html`<${Failure} data=${data} />` : null}
    <${Section} title="Input"><${CallInput} data=${data} /><//>
    ${
      data.diff ? html`<${Section} title="Change"><${WholeFile} data=${data} /><${Diff} text=${data.diff} /><//>` : null
    }
    ${
      wholeReason(data) && !more.data?.blocks
        ? null
        : html`<${Section} title="Result"><${CallResult} data=${data} blocks=${more.data?.blocks} /><//>`
    }
    <${Section} title="Decision and hooks"><${Decision} data=${data} why=${more.data?.why} /><//>
    ${
      data.recovery
        ? html`<${Section} title="Recovery">
        <${Recovery} chain=${data.recovery} id=${call.id} session=${session} /><//>`
        : null
    }
    ${data.around ? html`<${Section} title="Before and after"><${Around} data=${data} session=${session} /><//>` : null}
    ${embedded ? null : html`<${Records} answer=${more} />`}
  </article>`;
}

const Section = ({ title, children }) => html`<section class="part"><h3>${title}</h3>${children}</section>`;

// The diff has only the changed lines; Files shows the whole file. It knows files by their full paths.
function WholeFile({ data }) {
  const { call, input } = data;
  const path = call.state === "succeeded" && input !== null && typeof input === "object" ? pathOf(input) : "";
  if (!/^(\/|[A-Za-z]:)/.test(path)) return null;
  const link = (at, label) => html`<a href=${href("/files", {}, { path, at })}>${label}</a>`;
  return html`<p class="faint whole-file">Whole file: ${link(`before:${call.id}`, "before")}, ${link(call.id, "after")}
    </p>`;
}

const MAX_REASON = 600;

// The result of a call that failed, if it is short text: then it is the reason, and is shown once.
function wholeReason({ call, result }) {
  const output = result?.structured;
  if (
    call.state === "succeeded" ||
    !result?.text ||
    result.text.length > MAX_REASON ||
    output?.stdout ||
    output?.stderr
  )
    return null;
  return result.text;
}

function Failure({ data }) {
  const { call, meaning, advice } = data;
  const reason = wholeReason(data) ?? call.error_text;
  return html`<div class=${`failure tone-${STATES[call.state]?.[1] ?? "muted"}`}><p><b>${words(call.state)}
    </b>: ${meaning}.</p>
    ${reason ? html`<p class="mono reason">${reason}</p>` : null}
    ${advice ? html`<p>${advice.cause}. ${advice.solution ? html`<b>${advice.solution}.</b>` : null}</p>` : null}
      </div>`;
}

function Decision({ data, why }) {
  const { call, events, meaning } = data;
  const hooks = events.filter(({ type }) => type === "hook");
  const others = events.filter(({ type }) => type !== "hook" && (embedded || type !== "permission"));
  const reason = flat(wholeReason(data) ?? "");
  const verdict = why ? ({ true: "allowed", false: "not allowed" }[why.allowed] ?? "unknown") : "…";
  return html`<dl class="fields">
    ${
      embedded
        ? null
        : html`<${Field} label="decision"><span class=${why?.allowed === false ? "tone-warn" : ""}>
        ${verdict}</span><//>`
    }
    ${(why?.rows ?? [])
      .filter(([label, text]) => label !== "hook" && label !== "evidence" && flat(text) !== reason)
      .map(([label, text]) => html`<${Field} label=${label}>${text}<//>`)}
    <${Field} label="state"><${StateBadge} state=${call.state} /> <span class="faint">${meaning}</span><//>
    ${call.evidence.map(
      ([rule, text]) =>
        html`<${Field} label="evidence">${rule}
          ${text ? html` <span class="faint">${text}</span>` : null}<//>`,
    )}
    ${hooks.map(
      (hook) =>
        html`<${Field} label="hook"><b>${hook.name || hook.point}</b> ${hook.outcome}
          ${hook.duration_ms === null ? "" : `, ${duration(hook.duration_ms)}`}${
            hook.exit_code === null ? "" : `, exit ${hook.exit_code}`
          }
        ${hook.command ? html` <code>${hook.command}</code>` : null}
        ${hook.text ? html`<p class="said">${hook.text}</p>` : null}<//>`,
    )}
    ${others.map((event) => html`<${Field} label=${event.type}>${eventText(event)}<//>`)}
  </dl>`;
}

const flat = (text) => text.replace(/\s+/g, " ").trim();

function eventText({ task_id: task, kind, count, status, summary, text }) {
  return [task, words(kind), count ? `×${number(count)}` : "", status, summary, text].filter(Boolean).join(" · ");
}

function Recovery({ chain, id, session }) {
  const rows = [chain.start, ...chain.links];
  return html`<p class="described">${
    chain.attempts < 2
      ? `${words(chain.outcome)}: no later call tried it again`
      : (chain.name ? `${recoveryName(chain.name)}, ` : "") +
        `${words(chain.outcome)} after ${plural(chain.attempts, "attempt")}`
  }
    ${chain.evasion ? ", possible evasion" : ""}${chain.wall_ms ? `, in ${duration(chain.wall_ms)}` : ""}</p>
    ${
      rows.length > 1
        ? html`<ol class="sequence">${rows.map(
            (row) => html`<${Step} row=${row} session=${session} current=${row.id === id} />`,
          )}</ol>`
        : null
    }`;
}

const Step = ({ row, session, current }) =>
  html`<li class=${current ? "here" : ""}>
  <a href=${callHref(row, session)} aria-current=${current ? "true" : undefined}>
  <${StateBadge} state=${row.state} text=${false} /> <b>${row.tool ?? "?"}</b> <span class="mono">
  ${oneLine(row.target, 160)}</span></a></li>`;

function Around({ data, session }) {
  const { call, around, prompt } = data;
  const item = (one) =>
    "voice" in one
      ? html`<li class="said"><span class="voice">${WORDS.voices[one.voice][1]}</span>
      <${Markdown} text=${one.text.slice(0, 4000)} /></li>`
      : html`<${Step} row=${one} session=${session} />`;
  return html`${
    prompt
      ? html`<details class="prompt"><summary>Prompt of this turn: ${firstLine(prompt, 140)}</summary>
        <${Markdown} text=${prompt} /></details>`
      : null
  }
    <ol class="sequence">${around.before.map(item)}<${Step} row=${call} session=${session} current />
      ${around.after.map(item)}</ol>`;
}

function Records({ answer }) {
  return html`<details class="part records"><summary><h3>Raw records</h3></summary>
    <${Answer} of=${answer} what="records">${({ records }) =>
      records.map(
        (record) =>
          html`<div class="record"><p class="faint"><b>${record.what}</b> <span class="mono">
          ${record.file}:${record.line}</span> ${plural(record.bytes, "byte")}
          ${record.text.length < record.bytes / 4 ? ", shortened" : ""}</p>
      <${Code} language="json" text=${indented(record.text)} /></div>`,
      )}<//></details>`;
}

function indented(line) {
  try {
    return JSON.stringify(JSON.parse(line), null, 2);
  } catch {
    return line;
  }
}

function Copies({ data, session }) {
  const { call } = data;
  const command = shellCommand(data);
  const quoted = (word) => (/^[\w.:/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const name = call.session ?? session;
  return html`<p class="copies">
    ${data.problem ? html`<span class="tone-bad">${data.problem}</span>` : null}
      <${Copy} label="Copy as JSON" text=${() => JSON.stringify(data, null, 2)} />
    ${command ? html`<${Copy} label="Copy command" text=${() => command} />` : null}
    <${Copy} label="Copy toolspan command" text=${() =>
      `toolspan show ${quoted(call.id)}${name ? ` --session ${quoted(name)}` : ""}`} />
    ${
      embedded
        ? null
        : html`<${Copy} label="Copy link"
          text=${() => new URL(callHref(call, session), location.href).href} />`
    }</p>`;
}

export function Copy({ label, text }) {
  const [done, setDone] = useState("");
  const copy = () =>
    navigator.clipboard.writeText(text()).then(
      () => setDone("Copied"),
      () => setDone("Not allowed"),
    );
  useEffect(() => {
    if (!done) return undefined;
    const timer = setTimeout(() => setDone(""), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  return html`<button type="button" class="small" onClick=${copy}><span aria-live="polite">${done || label}</span>
    </button>`;
}
