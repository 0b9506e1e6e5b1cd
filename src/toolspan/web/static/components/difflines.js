// A unified diff as lines with their numbers; long diffs are cut until somebody asks for all of it.
import { html, useState } from "../lib.js";
import { number } from "./format.js";

const KINDS = { "+": "added", "-": "removed", "@": "hunk" };

// Return [{ kind, old, new, text }] of a unified diff; the headers of its files are left out.
export function parseDiff(diff) {
  const rows = [];
  let [old, now, inside] = [null, null, false];
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    if (hunk) [old, now, inside] = [Number(hunk[1]), Number(hunk[2]), true];
    else if (!inside && /^(diff |index |--- |\+\+\+ |new file|deleted file|similarity|rename )/.test(line)) continue;
    const kind = hunk ? "hunk" : line.startsWith("\\") ? "note" : (KINDS[line[0]] ?? "same");
    const row = { kind, text: hunk || kind === "note" ? line : line.slice(1), old: null, new: null };
    if (old !== null && (kind === "same" || kind === "removed")) row.old = old++;
    if (now !== null && (kind === "same" || kind === "added")) row.new = now++;
    rows.push(row);
  }
  return rows;
}

export const SIGNS = { added: "+", removed: "−", same: "" };

export function DiffLines({ diff, limit = 400 }) {
  const [all, setAll] = useState(false);
  if (!diff) return html`<p class="note empty">No difference.</p>`;
  const rows = parseDiff(diff);
  const shown = all ? rows : rows.slice(0, limit);
  return html`<div class="difflines" tabindex="0" role="region" aria-label="Difference"><table><tbody>
    ${shown.map(
      (row, n) =>
        html`<tr key=${n} class=${`diff-${row.kind}`}>
      <td class="no">${row.old ?? ""}</td><td class="no">${row.new ?? ""}</td>
      <td class="sign">${SIGNS[row.kind] ?? ""}</td><td class="line">${row.text}</td></tr>`,
    )}</tbody></table>
    ${
      shown.length < rows.length
        ? html`<button type="button" class="quiet"
          onClick=${() => setAll(true)}>Show ${number(rows.length - shown.length)} more lines</button>`
        : null
    }</div>`;
}
