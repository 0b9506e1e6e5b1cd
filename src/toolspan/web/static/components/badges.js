// Small marks: the state of a call, a client, the status of a live session. Never by colour alone.
import { html } from "../lib.js";
import { words } from "./format.js";
import { STATES, WORDS } from "./words.js";

export function StateBadge({ state, text = true }) {
  const [symbol, tone] = STATES[state] ?? ["?", "muted"];
  return html`<span class="state tone-${tone}" title=${words(state)}><span aria-hidden="true">${symbol}</span>${
    text ? html` ${words(state)}` : html`<span class="sr-only">${words(state)}</span>`
  }</span>`;
}

export const Badge = ({ tone = "muted", title, children }) =>
  html`<span class="badge tone-${tone}" title=${title}>${children}</span>`;

export const clientName = (client) => WORDS.clients[client] ?? client;

const STATUS = {
  waiting: ["waiting for you", "warn"],
  running: ["running", "good"],
  idle: ["idle", "muted"],
  dead: ["broke off", "bad"],
};
export function LiveBadge({ status }) {
  const [text, tone] = STATUS[status] ?? [status, "muted"];
  return html`<${Badge} tone=${tone}>${
    status === "running" ? html`<span class="pulse" aria-hidden="true"></span>` : null
  }${text}<//>`;
}

// Facts in one line, with dots between them; empty ones are left out. <Facts items=${[a, b && c]} />
export const Facts = ({ items, className = "summary" }) =>
  html`<p class="facts ${className}">${items
    .filter((item) => item !== null && item !== undefined && item !== "" && item !== false)
    .map((item) => html`<span>${item}</span>`)}</p>`;

// The tokens of a row of `usage`. Other counts of some clients contain cached tokens twice.
export const usageTokens = (row) =>
  row.input_tokens + row.output_tokens + row.cache_creation_input_tokens + row.cache_read_input_tokens;
