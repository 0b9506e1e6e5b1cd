// Call: one call in detail, as `toolspan show CALL --json`. Query: session.
import { html, useEffect } from "../lib.js";
import { useApi } from "../api.js";
import { Answer } from "../components/messages.js";
import { StateBadge } from "../components/badges.js";
import { Code } from "../components/rich.js";
import { href } from "../router.js";

export default function Call({ params, query, setTitle }) {
  const answer = useApi(`call/${encodeURIComponent(params.id)}`, { session: query.session });
  const call = answer.data?.call ?? answer.data;
  useEffect(() => setTitle(call?.tool ?? "Call"), [call?.tool]);
  return html`<${Answer} of=${answer} what="the call">${(data) => html`<section class="page call">
    <div class="head"><h1>${call.tool ?? "Call"}</h1><p class="summary">${call.state ? html`<${StateBadge} state=${call.state} /> · ` : null}<a href=${href("/session/:id", { id: query.session ?? call.session ?? "" })}>session</a></p></div>
    <${Code} language="json" text=${JSON.stringify(data, null, 2)} />
  </section>`}<//>`;
}
