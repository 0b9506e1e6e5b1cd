// A question that waits for a person: what a call would do, and the answers.
import { html, useEffect, useState } from "../lib.js";
import { post } from "../api.js";
import { useKeys } from "../keys.js";
import { href } from "../router.js";
import { Badge, Facts, LiveBadge } from "./badges.js";
import { SIGNS } from "./difflines.js";
import { duration, number, plural, shortId } from "./format.js";

// The time, once a second while something runs and the page is visible.
export function useNow(active) {
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

export const questionId = (entry) => `question-${entry.id}`;

// A text of the server in pieces, of which every second one is an escape such as <U+202E>.
const Escaped = ({ pieces }) =>
  pieces.map((piece, n) => (n % 2 ? html`<mark class="escape" key=${n}>${piece}</mark>` : piece));

const FileName = ({ file }) =>
  html`<p class="file" data-test="file"><b class="mono"><${Escaped} pieces=${file.path} />
  </b>
  ${file.is_outside ? html`<${Badge} tone="bad">outside the project<//>` : null}
  ${file.is_new ? html`<${Badge} tone="info">new file<//>` : null}
  ${
    file.link
      ? html`<span class="faint">through the link <span class="mono"><${Escaped} pieces=${file.link} /></span>
      </span>`
      : null
  }</p>`;

// What a call would do: all rows, or the first and the last of them and a button for the others.
function Preview({ card, diff, all, onShowAll }) {
  const { rows, fold } = card;
  const draw = (row, n) =>
    html`<tr key=${n} class=${`diff-${row.kind ?? "plain"}`}>
    <td class="sign">${row.continues ? "↳" : (SIGNS[row.kind] ?? "")}</td>
    <td class="line"><${Escaped} pieces=${
      row.kind in SIGNS && !row.continues ? [row.pieces[0].slice(1), ...row.pieces.slice(1)] : row.pieces
    } /></td></tr>`;
  const shown = rows
    .map((row, n) => [row, n])
    .filter(([row, n]) => row.kind !== "header" && (all || n < fold.head || n >= rows.length - fold.tail));
  const end = shown.findIndex(([, n]) => n >= fold.head);
  const [head, tail] = all || end < 0 ? [shown, []] : [shown.slice(0, end), shown.slice(end)];
  return html`<div class=${`difflines preview ${diff ? "" : "command"}`} role="region" aria-label="What it would do">
    <table>
    <tbody>${head.map(([row, n]) => draw(row, n))}</tbody>
    ${
      all
        ? null
        : html`<tbody class="cut"><tr><td colspan="2">
        <button type="button" data-key="view" onClick=${onShowAll}>
        ${plural(fold.hidden, "line")} not shown: show all</button></td></tr></tbody>`
    }
    <tbody>${tail.map(([row, n]) => draw(row, n))}</tbody></table></div>`;
}

const LONG_ROWS = 5;

// How much a call would change, or how long its command is.
function Size({ card, diff }) {
  const { added, removed, lines } = card.size;
  if (!diff) return lines > LONG_ROWS ? html`<p class="faint" data-test="size">${plural(lines, "line")}</p>` : null;
  const kind =
    card.files.length === 1 && card.files[0].is_new ? "writes a new file" : removed ? "changes lines" : "adds lines";
  return html`<p class="size" data-test="size">${kind}: <span class="tone-good">+${number(added)}
    </span> <span class="tone-bad">−${number(removed)}</span></p>`;
}

// A button that allows more than this call. For all projects and for ever, it needs a second click.
function Always({ scope, label, disabled, onAllow }) {
  const [isArmed, setArmed] = useState(false);
  const click = () => (scope === "user" && !isArmed ? setArmed(true) : onAllow());
  return html`<button type="button" class=${isArmed ? "danger" : ""} data-key=${scope === "session" ? "always" : null}
      data-scope=${scope} disabled=${disabled}
    onClick=${click} onBlur=${() => setArmed(false)}>
      ${isArmed ? "Always, everywhere: click again" : html`<${Escaped} pieces=${label} />`}</button>`;
}

// The questions of one or all sessions, with the keys that answer the one that has the focus.
export function useQuestionKeys() {
  const press = (name) => document.activeElement?.closest(".live-card")?.querySelector(`[data-key=${name}]`)?.click();
  useKeys({
    a: { label: "allow (on a question)", run: () => press("allow") },
    s: { label: "allow for this session (on a question)", run: () => press("always") },
    d: { label: "deny (on a question)", run: () => press("deny") },
    v: { label: "show all lines (on a question)", run: () => press("view") },
  });
}

export function Question({ entry, now, title }) {
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
  const asks =
    question.tool === "AskUserQuestion" && Array.isArray(question.input.questions) ? question.input.questions : null;
  const left = question.seconds === null ? null : Math.max(0, Math.ceil(asked + question.seconds - now / 1000));
  const complete = asks === null || asks.every((one) => one.optional || answers[one.question]?.length);
  const allow = {
    behavior: "allow",
    answers:
      asks && Object.fromEntries(Object.entries(answers).map(([text, chosen]) => [text, [].concat(chosen).join(", ")])),
  };
  return html`<article class="live-card question" id=${questionId(entry)} tabindex="0"
      aria-label=${`${question.tool} asks for permission`} data-test="question">
    <header><${LiveBadge} status="waiting" /><h2>${
      asks ? "A question for you" : html`<b><${Escaped} pieces=${card.tool} /></b> needs permission`
    }</h2>
      <span class="clock">${duration(Math.max(0, now - asked * 1000))}
        ${left === null ? "" : html` · <span title="then the client asks as always">${left} s left</span>`}</span>
        </header>
    ${
      asks
        ? asks.map(
            (one) =>
              html`<${Choice} key=${one.question} one=${one} value=${answers[one.question]}
            onChange=${(value) => setAnswers({ ...answers, [one.question]: value })} />`,
          )
        : html`${card.files.map((file) => html`<${FileName} key=${file.path.join("")} file=${file} />`)}
        <${Size} card=${card} diff=${question.is_diff} />
        <${Preview} card=${card} diff=${question.is_diff} all=${all} onShowAll=${() => setAll(true)} />`
    }
    <${Facts} className="faint" items=${[
      question.why && html`<${Escaped} pieces=${card.why} />`,
      question.cwd && html`<span class="mono"><${Escaped} pieces=${card.cwd} /></span>`,
      `asked by ${question.client}`,
      question.agent && `agent ${shortId(question.agent)}`,
      question.session &&
        html`<a data-key="open" href=${href(
          "/session/:id",
          { id: question.session },
          { call: question.call ?? "" },
        )}>${title ? `session: ${title}` : `session ${shortId(question.session)}`}
        </a>`,
    ]} />
    ${problem ? html`<p class="tone-bad" role="alert">${problem}</p>` : null}
    ${
      question.always
        ? html`<div class="always"><span>
        Always allow ${card.allows.map(
          (pieces, n) => html`${n ? ", " : ""}<b class="mono" key=${n}><${Escaped} pieces=${pieces} /></b>`,
        )}</span>
      ${Object.entries(card.scopes).map(
        ([scope, label]) =>
          html`<${Always} key=${scope} scope=${scope} label=${label} disabled=${sent || !all}
        onAllow=${() => send({ behavior: "allow", always: scope })} />`,
      )}</div>`
        : null
    }
    <form class="actions" onSubmit=${(event) => {
      event.preventDefault();
      if (comment.trim()) send({ behavior: "deny", message: comment.trim() });
    }}>
      <button type="button" class="primary" data-key="allow" disabled=${sent || !complete || !(all || asks)} title=${
        all || asks ? null : "Show all lines first"
      } onClick=${() => send(allow)}>${asks ? "Answer" : "Allow once"}</button>
      <button type="button" class="danger" data-key="deny" disabled=${sent}
        onClick=${() => send({ behavior: "deny" })}>Deny</button>
      <input type="text" aria-label="What should the model do instead?" placeholder="or say what it should do instead"
        value=${comment} onInput=${(event) => setComment(event.target.value)} />
      ${comment.trim() ? html`<button disabled=${sent}>Deny and say so</button>` : null}
    </form></article>`;
}

function Choice({ one, value, onChange }) {
  const several = one.multiSelect === true;
  const options = Array.isArray(one.options) ? one.options : [];
  const toggle = (label) =>
    onChange(
      several
        ? (value ?? []).includes(label)
          ? value.filter((item) => item !== label)
          : [...(value ?? []), label]
        : [label],
    );
  return html`<fieldset class="choice"><legend>${one.question}</legend>
    ${options.map(
      ({ label, description }) =>
        html`<label key=${label}>
          <input type=${several ? "checkbox" : "radio"} name=${one.question} checked=${(value ?? []).includes(label)}
            onChange=${() => toggle(label)} />
      <span><b>${label}</b> <span class="faint">${description}</span></span></label>`,
    )}
    <input type="text" aria-label=${`Answer: ${one.question}`} placeholder=${
      options.length ? "or another answer" : "Your answer"
    }
      onInput=${(event) => onChange(event.target.value ? [event.target.value] : [])} /></fieldset>`;
}
