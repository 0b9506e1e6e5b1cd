// Files: what calls did to files. Query: sort.
import { html, useEffect } from "../lib.js";
import { useApi } from "../api.js";
import { Answer } from "../components/messages.js";
import { Code } from "../components/rich.js";
import { plural } from "../components/format.js";

export default function Files({ setTitle }) {
  const answer = useApi("files", {}, { live: true });
  useEffect(() => setTitle("Files"), []);
  return html`<${Answer} of=${answer} what="files">${(rows) => html`<section class="page files">
    <div class="head"><h1>Files</h1><p class="summary" data-test="count">${plural(rows.length, "file")}</p></div>
    <${Code} language="json" text=${JSON.stringify(rows, null, 1)} /></section>`}<//>`;
}
