// What a view shows instead of data.
import { html } from "../lib.js";
import { FirstRun } from "./first-run.js";

export const Loading = ({ what = "data" }) => html`<p class="note loading" role="status">Loading ${what} …</p>`;

export const Problem = ({ error }) =>
  error.code === "no_transcripts"
    ? html`<${FirstRun} />`
    : html`<div class="note problem" role="alert"><strong>
    ${error.status === 404 ? "Not found" : error.status === 0 ? "No connection" : "This did not work"}</strong><p>
    ${error.message}</p></div>`;

export const Empty = ({ children }) => html`<p class="note empty">${children}</p>`;

// Show one of the above, or children with the data: <Answer of=${useApi(…)} what="sessions">${(data) => …}</Answer>
export function Answer({ of, what, children }) {
  if (of.error) return html`<${Problem} error=${of.error} />`;
  if (of.data === undefined) return html`<${Loading} what=${what} />`;
  return (Array.isArray(children) ? children[0] : children)(of.data);
}
