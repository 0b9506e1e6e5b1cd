// Live: what runs now. Questions that can be answered here come first, then sessions that wait for a person.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { post, useApi, useLive } from "../api.js";
import { useKeys } from "../keys.js";
import { Empty, Loading } from "../components/messages.js";
import { Badge, Facts, LiveBadge, StateBadge, clientName } from "../components/badges.js";
import { SIGNS } from "../components/difflines.js";
import { baseName, dateTime, duration, firstLine, parseTime, plural, shortId } from "../components/format.js";
import { href } from "../router.js";

export const styles = ["views/live.css"];

const ORDER = ["waiting", "running", "idle", "dead"];
const RESUME = { claude: "claude --resume", codex: "codex resume" };
const RECENT = { limit: 4, fields: "id,tool,state,target,duration_ms,requested" };

// The time, once a second while something runs and the page is visible.
function useNow(active) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!active) return undefined;
    let timer = null;
    const start = () => {
      clearInterval(timer);
      timer = null;
      if (document.hidden) return;
      setNow(Date.now());
      timer = setInterval(() => setNow(Date.now()), 1000);
    };
    start();
    document.addEventListener("visibilitychange", start);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", start);
    };
  }, [active]);
  return now;
}

export default function Live({ setTitle }) {
  const { sessions, questions, waiting } = useLive();
  useEffect(() => setTitle("Live"), []);
  const sorted = useMemo(() => [...(sessions ?? [])].sort((one, other) => ORDER.indexOf(one.status) - ORDER.indexOf(other.status)), [sessions]);
  const count = (status) => sorted.filter((session) => session.status === status).length;
  const now = useNow(questions.length > 0 || sorted.some(({ status }) => status === "running" || status === "waiting"));
  const cards = useRef(null);
  const move = (step) => {
    const all = [...cards.current.querySelectorAll(".live-card")];
    const at = all.indexOf(document.activeElement?.closest(".live-card"));
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))]?.focus();
  };
  const press = (name) => document.activeElement?.closest(".live-card")?.querySelector(`[data-key=${name}]`)?.click();
  useKeys({
    j: { label: "next card", run: () => move(1) },
    k: { label: "previous card", run: () => move(-1) },
    a: { label: "allow (on a question)", run: () => press("allow") },
    s: { label: "allow for this session (on a question)", run: () => press("always") },
    d: { label: "deny (on a question)", run: () => press("deny") },
    v: { label: "show all lines (on a question)", run: () => press("view") },
    Enter: { label: "open the session", run: () => press("open") },
  });
  if (sessions === null && !questions.length) return html`<section class="page live"><div class="head"><h1>Live</h1></div><${Loading} what="live sessions" /></section>`;
  return html`<section class="page live" ref=${cards}>
    <div class="head"><h1>Live</h1><${Facts} items=${[
      waiting > 0 && html`<b class="tone-warn" data-test="waiting">${waiting} waiting for you</b>`,
      html`<span data-test="running">${count("running")} running</span>`,
      `${count("idle")} idle`, count("dead") > 0 && html`<span class="tone-bad">${count("dead")} broke off</span>`]} /></div>
    <div role="status" class="sr-only">${questions.length ? `${plural(questions.length, "question")} waiting for you` : ""}</div>
    ${questions.map((entry) => html`<${Question} key=${entry.id} entry=${entry} now=${now} title=${firstLine(sorted.find(({ id }) => id === entry.question.session)?.title)} />`)}
    ${sorted.map((session) => html`<${Session} key=${session.id} session=${session} now=${now} questions=${questions.filter(({ question }) => question.session === session.id)} />`)}
    ${!sorted.length && !questions.length ? html`<${Empty}>No session is running. Sessions appear here when a client or <code>toolspan run</code> starts one.<br />To answer questions of Claude Code on this page: <code>toolspan hook install --approve</code><//>` : null}
  </section>`;
}

const questionId = (entry) => `question-${entry.id}`;

// A text of the server in pieces, of which every second one is an escape such as <U+202E>.
const Escaped = ({ pieces }) => pieces.map((piece, n) => (n % 2 ? html`<mark class="escape" key=${n}>${piece}</mark>` : piece));

const FileName = ({ file }) => html`<p class="file" data-test="file"><b class="mono"><${Escaped} pieces=${file.path} /></b>
  ${file.is_outside ? html`<${Badge} tone="bad">outside the project<//>` : null}
  ${file.is_new ? html`<${Badge} tone="info">new file<//>` : null}
  ${file.link ? html`<span class="faint">through the link <span class="mono"><${Escaped} pieces=${file.link} /></span></span>` : null}</p>`;

// What a call would do: all rows, or the first and the last of them and a button for the others.
function Preview({ card, diff, all, onShowAll }) {
  const { rows, fold } = card;
  const draw = (row, n) => html`<tr key=${n} class=${`diff-${row.kind ?? "plain"}`}>
    <td class="sign">${row.continues ? "↳" : SIGNS[row.kind] ?? ""}</td>
    <td class="line"><${Escaped} pieces=${row.kind in SIGNS && !row.continues ? [row.pieces[0].slice(1), ...row.pieces.slice(1)] : row.pieces} /></td></tr>`;
  const shown = rows.map((row, n) => [row, n]).filter(([row, n]) => row.kind !== "header" && (all || n < fold.head || n >= rows.length - fold.tail));
  const end = shown.findIndex(([, n]) => n >= fold.head);
  const [head, tail] = all || end < 0 ? [shown, []] : [shown.slice(0, end), shown.slice(end)];
  return html`<div class=${`difflines preview ${diff ? "" : "command"}`} role="region" aria-label="What it would do"><table>
    <tbody>${head.map(([row, n]) => draw(row, n))}</tbody>
    ${all ? null : html`<tbody class="cut"><tr><td colspan="2"><button type="button" data-key="view" onClick=${onShowAll}>${plural(fold.hidden, "line")} not shown: show all</button></td></tr></tbody>`}
    <tbody>${tail.map(([row, n]) => draw(row, n))}</tbody></table></div>`;
}

function Question({ entry, now, title }) {
  const { question, card, asked } = entry;
  const [all, setAll] = useState(card.fold.hidden === 0);
  const [comment, setComment] = useState("");
  const [answers, setAnswers] = useState({});
  const [sent, setSent] = useState(false);
  const [problem, setProblem] = useState(null);
  const send = async (body) => {
    setSent(true);
    try {
      await post(`questions/${encodeURIComponent(entry.id)}`, body);
    } catch (error) {
      setProblem(error.message);
      setSent(false);
    }
  };
  const asks = question.tool === "AskUserQuestion" && Array.isArray(question.input.questions) ? question.input.questions : null;
  const left = question.seconds === null ? null : Math.max(0, Math.ceil(asked + question.seconds - now / 1000));
  const complete = asks === null || asks.every(({ question: text }) => answers[text]?.length);
  const allow = { behavior: "allow", answers: asks && Object.fromEntries(Object.entries(answers).map(([text, chosen]) => [text, [].concat(chosen).join(", ")])) };
  return html`<article class="live-card question" id=${questionId(entry)} tabindex="0" aria-label=${`${question.tool} asks for permission`} data-test="question">
    <header><${LiveBadge} status="waiting" /><h2>${asks ? "A question for you" : html`<b><${Escaped} pieces=${card.tool} /></b> needs permission`}</h2>
      <span class="clock">${duration(Math.max(0, now - asked * 1000))}${left === null ? "" : html` · <span title="then the client asks as always">${left} s left</span>`}</span></header>
    ${asks ? asks.map((one) => html`<${Choice} key=${one.question} one=${one} value=${answers[one.question]} onChange=${(value) => setAnswers({ ...answers, [one.question]: value })} />`)
      : html`${card.files.map((file) => html`<${FileName} key=${file.path.join("")} file=${file} />`)}
        <${Preview} card=${card} diff=${question.is_diff} all=${all} onShowAll=${() => setAll(true)} />`}
    <${Facts} className="faint" items=${[question.why && html`<${Escaped} pieces=${card.why} />`, question.cwd && html`<span class="mono"><${Escaped} pieces=${card.cwd} /></span>`, `asked by ${question.client}`,
      question.agent && `agent ${shortId(question.agent)}`,
      question.session && html`<a data-key="open" href=${href("/session/:id", { id: question.session }, { call: question.call ?? "" })}>${title ? `session: ${title}` : `session ${shortId(question.session)}`}</a>`]} />
    ${problem ? html`<p class="tone-bad" role="alert">${problem}</p>` : null}
    ${question.always ? html`<div class="always"><span>Always allow ${card.allows.map((pieces, n) => html`${n ? ", " : ""}<b class="mono" key=${n}><${Escaped} pieces=${pieces} /></b>`)}</span>
      ${Object.entries(card.scopes).map(([scope, label]) => html`<button type="button" key=${scope} data-key=${scope === "session" ? "always" : null} data-scope=${scope} disabled=${sent || !all}
        onClick=${() => send({ behavior: "allow", always: scope })}><${Escaped} pieces=${label} /></button>`)}</div>` : null}
    <form class="actions" onSubmit=${(event) => { event.preventDefault(); if (comment.trim()) send({ behavior: "deny", message: comment.trim() }); }}>
      <button type="button" class="primary" data-key="allow" disabled=${sent || !complete || !(all || asks)} title=${all || asks ? null : "Show all lines first"} onClick=${() => send(allow)}>${asks ? "Answer" : "Allow once"}</button>
      <button type="button" class="danger" data-key="deny" disabled=${sent} onClick=${() => send({ behavior: "deny" })}>Deny</button>
      <input type="text" aria-label="What should the model do instead?" placeholder="or say what it should do instead" value=${comment} onInput=${(event) => setComment(event.target.value)} />
      ${comment.trim() ? html`<button disabled=${sent}>Deny and say so</button>` : null}
    </form></article>`;
}

function Choice({ one, value, onChange }) {
  const several = one.multiSelect === true;
  const options = Array.isArray(one.options) ? one.options : [];
  const toggle = (label) => onChange(several ? ((value ?? []).includes(label) ? value.filter((item) => item !== label) : [...(value ?? []), label]) : [label]);
  return html`<fieldset class="choice"><legend>${one.question}</legend>
    ${options.map(({ label, description }) => html`<label key=${label}><input type=${several ? "checkbox" : "radio"} name=${one.question} checked=${(value ?? []).includes(label)} onChange=${() => toggle(label)} />
      <span><b>${label}</b> <span class="faint">${description}</span></span></label>`)}
    <input type="text" aria-label="Another answer" placeholder="or another answer" onInput=${(event) => onChange(event.target.value ? [event.target.value] : [])} /></fieldset>`;
}

function Session({ session, now, questions }) {
  const questionOf = (call) => questions.find(({ question }) => (question.call ? question.call === call.id : question.tool === call.tool));
  const since = parseTime(session.since)?.getTime();
  const busy = session.status === "running" || session.status === "waiting";
  const recent = useApi(busy ? "calls" : null, { session: session.id, ...RECENT }, { live: true });
  const open = new Set(session.calls.map(({ id }) => id));
  const done = (recent.data ?? []).filter(({ id }) => !open.has(id)).slice(-3).reverse();
  return html`<article class=${`live-card ${session.status}`} tabindex="0" aria-label=${firstLine(session.title) || session.id} data-test=${session.status}>
    <header><${LiveBadge} status=${session.status} /><h2><a data-key="open" href=${href("/session/:id", { id: session.id })}>${firstLine(session.title) || session.id}</a></h2>
      ${since ? html`<span class="clock" title=${dateTime(new Date(since))}>${duration(Math.max(0, now - since))}</span>` : null}</header>
    ${session.calls.map((call) => html`<p class="call open" key=${call.id}><${StateBadge} state=${session.status === "dead" ? "never_answered" : session.status === "waiting" ? "awaiting_permission" : "running"} text=${false} />
      <b>${call.tool}</b>${questionOf(call) ? html`<span>waits for your <button type="button" class="quiet small" onClick=${() => document.getElementById(questionId(questionOf(call)))?.focus()}>answer above</button></span>`
        : html`<a class="mono" href=${href("/call/:id", { id: call.id }, { session: session.id })}>${firstLine(call.target) || shortId(call.id)}</a>`}
      <span class="clock">${call.requested ? duration(Math.max(0, now - parseTime(call.requested))) : ""}</span></p>`)}
    ${done.map((call) => html`<p class="call" key=${call.id}><${StateBadge} state=${call.state} text=${false} />
      <b>${call.tool}</b><a class="mono faint" href=${href("/call/:id", { id: call.id }, { session: session.id })}>${firstLine(call.target) || shortId(call.id)}</a>
      <span class="clock">${duration(call.duration_ms)}</span></p>`)}
    <${Facts} className="faint" items=${[html`<span title=${session.cwd}>${baseName(session.cwd)}</span>`, `${clientName(session.dialect)} ${session.version ?? ""}`.trim(),
      session.status === "waiting" && !questions.length && "answer it in the client", ...session.evidence]} />
    ${session.status === "dead" && RESUME[session.dialect] ? html`<p class="faint">It ended during a call. Continue it with <code>${RESUME[session.dialect]} ${session.id}</code></p>` : null}
  </article>`;
}
