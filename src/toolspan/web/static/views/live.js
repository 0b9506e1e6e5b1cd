// Live: what runs now. Questions that can be answered here come first, then sessions that wait for a person.
import { html, useEffect, useMemo, useRef } from "../lib.js";
import { useApi, useLive } from "../api.js";
import { useKeys } from "../keys.js";
import { Empty, Loading } from "../components/messages.js";
import { Facts, LiveBadge, StateBadge, clientName } from "../components/badges.js";
import { NotifyButton } from "../components/notify.js";
import { Question, questionId, useNow, useQuestionKeys } from "../components/question.js";
import {
  ago,
  baseName,
  dateTime,
  duration,
  firstLine,
  oneLine,
  parseTime,
  plural,
  shortId,
} from "../components/format.js";
import { href } from "../router.js";

export const styles = ["components/question.css", "views/live.css"];

const ORDER = ["waiting", "running", "idle", "dead"];
const RESUME = { claude: "claude --resume", codex: "codex resume" };

export default function Live({ setTitle }) {
  const { sessions, questions, waiting } = useLive();
  useEffect(() => setTitle("Live"), []);
  const sorted = useMemo(
    () => [...(sessions ?? [])].sort((one, other) => ORDER.indexOf(one.status) - ORDER.indexOf(other.status)),
    [sessions],
  );
  const count = (status) => sorted.filter((session) => session.status === status).length;
  const now = useNow(questions.length > 0 || sorted.some(({ status }) => status === "running" || status === "waiting"));
  const cards = useRef(null);
  const move = (step) => {
    const all = [...cards.current.querySelectorAll(".live-card")];
    const at = all.indexOf(document.activeElement?.closest(".live-card"));
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))]?.focus();
  };
  const press = (name) => document.activeElement?.closest(".live-card")?.querySelector(`[data-key=${name}]`)?.click();
  useQuestionKeys();
  useKeys({
    j: { label: "next card", run: () => move(1) },
    k: { label: "previous card", run: () => move(-1) },
    Enter: { label: "open the session", run: () => press("open") },
  });
  if (sessions === null && !questions.length)
    return html`<section class="page live"><div class="head"><h1>Live</h1>
    </div><${Loading} what="live sessions" /></section>`;
  return html`<section class="page live" ref=${cards}>
    <div class="head"><h1>Live</h1><${Facts} items=${[
      waiting > 0 && html`<b class="tone-warn" data-test="waiting">${waiting} waiting for you</b>`,
      html`<span data-test="running">${count("running")} running</span>`,
      `${count("idle")} idle`,
      count("dead") > 0 && html`<span class="tone-bad">${count("dead")} broke off</span>`,
    ]} />
        <${NotifyButton} /></div>
    <div role="status" class="sr-only">${
      questions.length ? `${plural(questions.length, "question")} waiting for you` : ""
    }</div>
    ${questions.map(
      (entry) =>
        html`<${Question} key=${entry.id} entry=${entry} now=${now}
            title=${firstLine(sorted.find(({ id }) => id === entry.question.session)?.title)} />`,
    )}
    ${sorted.map(
      (session) =>
        html`<${Session} key=${session.id} session=${session} now=${now}
            questions=${questions.filter(({ question }) => question.session === session.id)} />`,
    )}
    ${
      !sorted.length && !questions.length
        ? html`<${Empty}>
        No session is running. Sessions appear here when a client or <code>toolspan run</code> starts one.<br />
        <${LastSession} />
        To answer questions of Claude Code on this page: <code>toolspan hook install --approve</code><//>`
        : null
    }
  </section>`;
}

function LastSession() {
  const [last] = useApi("sessions", { sort: "-ended", limit: 1, fields: "id,title,first_prompt,ended" }).data ?? [];
  return last
    ? html`The last one: <a href=${href("/session/:id", { id: last.id })}>
      ${firstLine(last.title || last.first_prompt, 80) || shortId(last.id)}</a>, ${ago(parseTime(last.ended))}.<br />`
    : null;
}

function Session({ session, now, questions }) {
  const questionOf = (call) =>
    questions.find(({ question }) => (question.call ? question.call === call.id : question.tool === call.tool));
  const since = parseTime(session.since)?.getTime();
  const busy = session.status === "running" || session.status === "waiting";
  return html`<article class=${`live-card ${session.status}`} tabindex="0" aria-label=${
    firstLine(session.title) || session.id
  } data-test=${session.status}>
    <header><${LiveBadge} status=${session.status} /><h2>
      <a data-key="open" href=${href("/session/:id", { id: session.id })}>${firstLine(session.title) || session.id}</a>
      </h2>
      ${
        since
          ? html`<span class="clock" title=${dateTime(new Date(since))}>${duration(Math.max(0, now - since))}
          </span>`
          : null
      }</header>
    ${session.calls.map(
      (call) =>
        html`<p class="call open" key=${call.id}>
          <${StateBadge} state=${
            session.status === "dead"
              ? "never_answered"
              : session.status === "waiting"
                ? "awaiting_permission"
                : "running"
          } text=${false} />
      <b>${call.tool}</b>${
        questionOf(call)
          ? html`<span>waits for your <button type="button" class="quiet small"
            onClick=${() => document.getElementById(questionId(questionOf(call)))?.focus()}>answer above</button>
          </span>`
          : html`<a class="mono" href=${href("/call/:id", { id: call.id }, { session: session.id })}>
          ${oneLine(call.target) || shortId(call.id)}</a>`
      }
      <span class="clock">${call.requested ? duration(Math.max(0, now - parseTime(call.requested))) : ""}</span></p>`,
    )}
    ${(busy ? session.recent : []).map(
      (call) =>
        html`<p class="call" key=${call.id}><${StateBadge} state=${call.state} text=${false} />
      <b>${call.tool}</b><a class="mono faint" href=${href("/call/:id", { id: call.id }, { session: session.id })}>
        ${oneLine(call.target) || shortId(call.id)}</a>
      <span class="clock">${duration(call.duration_ms)}</span></p>`,
    )}
    <${Facts} className="faint" items=${[
      html`<span title=${session.cwd}>${baseName(session.cwd)}</span>`,
      `${clientName(session.client)} ${session.version ?? ""}`.trim(),
      session.status === "waiting" && !questions.length && "answer it in the client",
      ...session.evidence,
    ]} />
    ${
      session.status === "dead" && RESUME[session.client]
        ? html`<p class="faint">It ended during a call. Continue it with <code>${RESUME[session.client]} ${session.id}
        </code></p>`
        : null
    }
  </article>`;
}
