// Doctor: findings of all transcripts.
import { html, useEffect } from "../lib.js";
import { useApi } from "../api.js";
import { Answer } from "../components/messages.js";
import { Code } from "../components/rich.js";
import { plural } from "../components/format.js";

export default function Doctor({ setTitle }) {
  const answer = useApi("doctor");
  useEffect(() => setTitle("Doctor"), []);
  return html`<${Answer} of=${answer} what="findings">${(rows) => html`<section class="page doctor">
    <div class="head"><h1>Doctor</h1><p class="summary" data-test="count">${plural(rows.length, "file")} checked</p></div>
    <${Code} language="json" text=${JSON.stringify(rows, null, 1)} /></section>`}<//>`;
}
