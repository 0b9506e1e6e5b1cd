// Ctrl-K: go to a view, a session, a file or a cause of errors by typing a part of its name.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { useApi } from "../api.js";
import { ROUTES, href, navigate } from "../router.js";
import { ago, baseName, firstLine, plural, shortId } from "./format.js";
import { kindName } from "./words.js";

const PER_KIND = 8;
const MAX_FILES = 5000;

function useEntries() {
  const sessions = useApi("sessions", { fields: "id,title,first_prompt,project,ended" }).data;
  const causes = useApi("errors", { fields: "id,kind,tool,program,message,count" }).data;
  const files = useApi("files", { fields: "path,changes", limit: MAX_FILES }).data;
  return useMemo(
    () =>
      [
        ...ROUTES.filter(({ nav, name }) => nav ?? name).map(({ nav, name, pattern }) => ({
          kind: "view",
          title: nav ?? name,
          href: pattern,
        })),
        ...(sessions ?? [])
          .toSorted((one, other) => ((one.ended ?? "") < (other.ended ?? "") ? 1 : -1))
          .map((row) => ({
            kind: "session",
            title: firstLine(row.title || row.first_prompt, 160) || `untitled ${shortId(row.id)}`,
            note: [baseName(row.project), row.ended && ago(new Date(row.ended))].filter(Boolean).join(", "),
            more: row.id,
            href: href("/session/:id", { id: row.id }),
          })),
        ...(causes ?? [])
          .toSorted((one, other) => other.count - one.count)
          .map((row) => ({
            kind: "cause",
            title: `${row.program || row.tool || "?"}: ${kindName(row.kind)}`,
            note: `${firstLine(row.message, 120)} (${plural(row.count, "call")})`,
            href: href("/errors", {}, { group: row.id }),
          })),
        ...(files ?? []).map((row) => ({
          kind: "file",
          title: baseName(row.path),
          note: row.path,
          href: href("/files", {}, { path: row.path }),
        })),
      ].map((entry) => ({ ...entry, text: `${entry.title} ${entry.note ?? ""} ${entry.more ?? ""}`.toLowerCase() })),
    [sessions, causes, files],
  );
}

export function Palette({ onClose }) {
  const [typed, setTyped] = useState("");
  const [cursor, setCursor] = useState(0);
  const box = useRef(null);
  const entries = useEntries();
  useEffect(() => box.current.showModal(), []);
  const shown = useMemo(() => {
    const wanted = typed.toLowerCase().split(/\s+/).filter(Boolean);
    const counts = {};
    const found = entries.filter(
      ({ kind, text }) =>
        wanted.every((word) => text.includes(word)) && (counts[kind] = (counts[kind] ?? 0) + 1) <= PER_KIND,
    );
    if (typed.trim())
      found.push({
        kind: "search",
        title: `Search all sessions for “${typed.trim()}”`,
        href: href("/sessions", {}, { q: typed.trim() }),
      });
    return found;
  }, [entries, typed]);
  const open = (entry) => {
    onClose();
    if (entry) navigate(entry.href);
  };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setCursor(Math.max(0, Math.min(shown.length - 1, cursor + step)));
    } else if (event.key === "Enter") open(shown[cursor]);
  };
  useEffect(() => {
    box.current.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [cursor]);
  return html`<dialog ref=${box} class="palette" aria-label="Go to" onClose=${onClose}
      onClick=${(event) => event.target === box.current && onClose()}>
    <input type="search" role="combobox" aria-label="Go to a view, session, file or cause" aria-expanded="true"
      aria-controls="palette-list" aria-activedescendant=${shown[cursor] ? `palette-${cursor}` : undefined}
      autocomplete="off" placeholder="Go to a view, session, file or cause" value=${typed}
        onInput=${(event) => {
          setTyped(event.target.value);
          setCursor(0);
        }} onKeyDown=${press} />
    <ul id="palette-list" role="listbox" aria-label="Results">
      ${shown.map(
        (entry, n) =>
          html`<li key=${entry.href} id=${`palette-${n}`} role="option"
            aria-selected=${n === cursor ? "true" : "false"} onClick=${() => open(entry)}>
      <span class="kind faint">${entry.kind}</span><span class="name"><b>${entry.title}</b> <span class="faint">
        ${entry.note}</span></span></li>`,
      )}</ul>
  </dialog>`;
}
