// Compare: two sessions side by side. Query: a, b (session ids).
import { html, useEffect } from "../lib.js";
import { useApi } from "../api.js";
import { Answer, Empty } from "../components/messages.js";
import { Code } from "../components/rich.js";
import { firstLine } from "../components/format.js";

export default function Compare({ query, setQuery, setTitle }) {
  const sessions = useApi("sessions");
  const both = query.a && query.b;
  const answer = useApi(both ? "compare" : null, { a: query.a, b: query.b });
  useEffect(() => setTitle("Compare"), []);
  const choice = (side) => html`<label>${side.toUpperCase()} <select value=${query[side] ?? ""} onChange=${(event) => setQuery({ [side]: event.target.value })}>
    <option value="">choose a session</option>${(sessions.data ?? []).map((row) => html`<option key=${row.id} value=${row.id}>${firstLine(row.title || row.first_prompt, 60) || row.id}</option>`)}</select></label>`;
  return html`<section class="page compare"><div class="head"><h1>Compare</h1>${choice("a")}${choice("b")}</div>
    ${both ? html`<${Answer} of=${answer} what="the comparison">${(data) => html`<${Code} language="json" text=${JSON.stringify(data, null, 1)} />`}<//>` : html`<${Empty}>Choose two sessions.<//>`}
  </section>`;
}
