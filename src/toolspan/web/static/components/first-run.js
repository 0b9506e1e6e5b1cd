// What a machine shows on which no client has been used yet. The first session replaces it.
import { html, useEffect } from "../lib.js";
import { onOutdated, useApi } from "../api.js";

export function FirstRun() {
  const places = useApi("places").data ?? [];
  useEffect(() => onOutdated(() => location.reload()), []);
  return html`<section class="first-run" role="status"><h2>No sessions yet</h2>
    <p>This page shows the sessions of coding agents. It appears here as soon as one of them has written its first
      session; nothing needs to be reloaded.</p>
    <p>To see what it looks like: <code>toolspan ui --demo</code>. Transcripts in another place: <code>
      toolspan ui FOLDER</code>.</p>
    <details><summary>Folders that are watched</summary><ul>
      ${places.map(({ client, path }) => html`<li key=${path}>${client} <code>${path}</code></li>`)}</ul></details>
      </section>`;
}
