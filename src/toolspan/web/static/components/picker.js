// Choose one of thousands of sessions: type words of its title, project or id.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { escapeText } from "../visible.js";
import { ago, baseName, dateTime, firstLine, plural, shortId } from "./format.js";

const MAX_SHOWN = 60;

// sessions: rows of `sessions`, any order; value: an id; onChoose(id)
export function SessionPicker({ sessions, value, onChoose, label, id }) {
  const [open, setOpen] = useState(false);
  const [words, setWords] = useState("");
  const [cursor, setCursor] = useState(0);
  const box = useRef(null);
  const listed = useMemo(
    () =>
      sessions
        .map((row) => ({
          id: row.id,
          title: firstLine(row.title || row.first_prompt, 160) || shortId(row.id),
          project: baseName(row.project),
          end: row.ended ? new Date(row.ended) : null,
          calls: row.calls,
          text: `${row.title ?? ""} ${row.first_prompt ?? ""} ${row.project ?? ""} ${row.id}`.toLowerCase(),
        }))
        .sort((one, other) => (other.end ?? 0) - (one.end ?? 0)),
    [sessions],
  );
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = useMemo(
    () => (open ? listed.filter(({ text }) => wanted.every((word) => text.includes(word))).slice(0, MAX_SHOWN) : []),
    [listed, words, open],
  );
  const current = listed.find((row) => row.id === value);
  useEffect(() => {
    if (!open) return undefined;
    const close = (event) => {
      if (!box.current?.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", close);
    return () => removeEventListener("pointerdown", close);
  }, [open]);
  useEffect(() => {
    box.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [cursor]);
  const choose = (row) => {
    setOpen(false);
    setWords("");
    if (row) onChoose(row.id);
  };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setOpen(true);
      setCursor(Math.max(0, Math.min(shown.length - 1, cursor + step)));
    } else if (event.key === "Enter") choose(shown[cursor]);
    else if (event.key === "Escape") setOpen(false);
  };
  const name = escapeText(current?.title ?? "") || (value ? shortId(value) : "");
  return html`<div class="picker" ref=${box}>
    <label for=${id}>${label}</label>
    <input id=${id} type="text" role="combobox" autocomplete="off" aria-expanded=${open ? "true" : "false"}
      aria-controls=${`${id}-list`} aria-activedescendant=${open && shown[cursor] ? `${id}-${cursor}` : undefined}
      placeholder="Choose a session" value=${open ? words : name}
        onFocus=${(event) => {
          setOpen(true);
          setWords("");
          setCursor(0);
          event.target.select();
        }}
      onInput=${(event) => {
        setWords(event.target.value);
        setCursor(0);
        setOpen(true);
      }} onKeyDown=${press} />
    <ul id=${`${id}-list`} role="listbox" aria-label=${`Sessions for ${label}`} hidden=${!open}>
      ${shown.map(
        (row, n) =>
          html`<li key=${row.id} id=${`${id}-${n}`} role="option" aria-selected=${
            n === cursor ? "true" : "false"
          } onClick=${() => choose(row)}>
      <b>${row.title}</b><span class="faint" title=${dateTime(row.end)}>
        ${[row.project, ago(row.end), plural(row.calls, "call")].filter(Boolean).join(" · ")}</span></li>`,
      )}
      ${
        open && !shown.length
          ? html`<li class="faint" role="option" aria-selected="false"
            aria-disabled="true">No session contains these words.</li>`
          : null
      }</ul>
  </div>`;
}
