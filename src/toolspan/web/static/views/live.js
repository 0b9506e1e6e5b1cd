// Live: sessions that are open now; those that wait for a person come first.
import { html, useEffect, useState } from "../lib.js";
import { onLive } from "../api.js";
import { Empty, Loading } from "../components/messages.js";
import { LiveBadge } from "../components/badges.js";
import { baseName, firstLine } from "../components/format.js";
import { href } from "../router.js";

const ORDER = ["waiting", "running", "idle", "dead"];

export default function Live({ setTitle }) {
  const [sessions, setSessions] = useState(null);
  useEffect(() => setTitle("Live"), []);
  useEffect(() => onLive(setSessions), []);
  if (sessions === null) return html`<${Loading} what="live sessions" />`;
  const sorted = [...sessions].sort((one, other) => ORDER.indexOf(one.status) - ORDER.indexOf(other.status));
  return html`<section class="page live"><div class="head"><h1>Live</h1></div>
    ${sorted.length ? html`<div class="grid">${sorted.map((session) => html`<div class="card" key=${session.id}>
      <p><${LiveBadge} status=${session.status} /> <a href=${href("/session/:id", { id: session.id })}>${firstLine(session.title) || session.id}</a></p>
      <p class="faint">${baseName(session.cwd)} · ${session.evidence.join("; ")}</p>
      ${session.calls.map((call) => html`<p class="mono" key=${call.id}>${call.tool} ${firstLine(call.target)}</p>`)}</div>`)}</div>`
      : html`<${Empty}>No session is running.<//>`}
  </section>`;
}
