// A unified diff, side by side where there is room for two columns.
import { html, useMemo, useState } from "../lib.js";
import { plural } from "./format.js";

const MOST_ROWS = 1500;

// Return [{ header, rows: [{ kind, left, right, oldLine, newLine }] }]: one entry per file.
export function parseDiff(text) {
  const files = [];
  let file = null;
  let [oldLine, newLine] = [null, null];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let n = 0; n < Math.max(removed.length, added.length); n += 1) {
      const [left, right] = [removed[n], added[n]];
      file.rows.push({
        kind: "change",
        left: left?.text,
        right: right?.text,
        oldLine: left?.line,
        newLine: right?.line,
      });
    }
    removed = [];
    added = [];
  };
  const open = () => {
    if (!file) files.push((file = { header: "", rows: [] }));
  };
  for (const line of (text ?? "").replace(/\n$/, "").split("\n")) {
    const inHunk = oldLine !== null;
    if (/^diff --git |^--- /.test(line) && !(inHunk && line.startsWith("--- ") && removed.length)) {
      if (file) flush();
      if (!file || file.rows.length) files.push((file = { header: "", rows: [] }));
      file.header ||= line.replace(/^(diff --git |--- (a\/)?)/, "").replace(/\t.*$/, "");
      oldLine = newLine = null;
    } else if (!inHunk && line.startsWith("+++ ")) {
      open();
      const name = line.slice(4).replace(/^b\//, "").replace(/\t.*$/, "");
      if (name !== "/dev/null") file.header = name;
    } else if (line.startsWith("@@")) {
      open();
      flush();
      const place = /@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
      [oldLine, newLine] = place ? [Number(place[1]), Number(place[2])] : [NaN, NaN];
      file.rows.push({ kind: "hunk", left: line });
    } else if (line.startsWith("-")) {
      open();
      if (added.length) flush();
      removed.push({ text: line.slice(1), line: oldLine });
      oldLine += 1;
    } else if (line.startsWith("+")) {
      open();
      added.push({ text: line.slice(1), line: newLine });
      newLine += 1;
    } else if (line.startsWith("\\")) {
      continue;
    } else if (inHunk) {
      flush();
      file.rows.push({ kind: "same", left: line.slice(1), right: line.slice(1), oldLine, newLine });
      oldLine += 1;
      newLine += 1;
    } else if (line) {
      open();
      file.rows.push({ kind: "note", left: line });
    }
  }
  if (file) flush();
  return files;
}

// A diff of two texts without their place in a file: everything of the one against everything of the other.
export const pairDiff = (before, after) =>
  [
    ...(before ? before.split("\n").map((line) => `-${line}`) : []),
    ...(after ? after.split("\n").map((line) => `+${line}`) : []),
  ].join("\n");

export function Diff({ text }) {
  const files = useMemo(() => parseDiff(text), [text]);
  return html`<div class="diffs">${files.map((file, n) => html`<${FileDiff} key=${n} file=${file} />`)}</div>`;
}

function FileDiff({ file }) {
  const [all, setAll] = useState(false);
  const rows = all ? file.rows : file.rows.slice(0, MOST_ROWS);
  const count = (side) => file.rows.filter((row) => row.kind === "change" && row[side] !== undefined).length;
  return html`<figure class="diff">
    <figcaption><span class="mono">${file.header || "change"}</span><span><span class="tone-good">+${count("right")}
      </span> <span class="tone-bad">−${count("left")}</span></span></figcaption>
    <div class="diff-box" tabindex="0" role="region" aria-label=${`Changes of ${file.header || "a file"}`}>
      <table><colgroup><col class="no" /><col /><col class="no" /><col /></colgroup><thead class="sr-only"><tr>
        <th scope="col">old line</th><th scope="col">before</th><th scope="col">new line</th><th scope="col">after</th>
        </tr></thead>
      <tbody>${rows.map((row, n) => html`<${DiffRow} key=${n} row=${row} />`)}</tbody></table>
    </div>
    ${
      rows.length < file.rows.length
        ? html`<button type="button"
          onClick=${() => setAll(true)}>Show ${plural(file.rows.length - rows.length, "more line")}</button>`
        : null
    }
  </figure>`;
}

function DiffRow({ row }) {
  if (row.kind === "hunk" || row.kind === "note")
    return html`<tr class=${row.kind}><td colspan="4">${row.left}</td>
    </tr>`;
  const [left, right] =
    row.kind === "change" && row.left !== undefined && row.right !== undefined
      ? emphasise(row.left, row.right)
      : [row.left, row.right];
  const changed = row.kind === "change";
  return html`<tr class=${row.kind}>
    <td class="no">${row.oldLine || ""}</td><td class=${
      changed && row.left !== undefined ? "old" : row.left === undefined ? "none" : ""
    }>${row.left === undefined ? "" : left}</td>
    <td class="no">${row.newLine || ""}</td><td class=${
      changed && row.right !== undefined ? "new" : row.right === undefined ? "none" : ""
    }>${row.right === undefined ? "" : right}</td></tr>`;
}

// Mark what differs between two lines that are mostly equal.
function emphasise(before, after) {
  let [start, end] = [0, 0];
  const most = Math.min(before.length, after.length);
  while (start < most && before[start] === after[start]) start += 1;
  while (end < most - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  if (start + end < most * 0.3) return [before, after];
  const mark = (line, tag) =>
    html`${line.slice(0, start)}<${tag}>${line.slice(start, line.length - end)}<//>
    ${line.slice(line.length - end)}`;
  return [mark(before, "del"), mark(after, "ins")];
}
