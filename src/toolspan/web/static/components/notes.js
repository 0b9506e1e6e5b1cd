// Stars and notes of sessions.
import { html, useEffect, useState } from "../lib.js";
import { post, useApi } from "../api.js";

// A hook: { notes, save(id, note), problem }, where `notes` has { star, note } by session.
export function useNotes() {
  const answer = useApi("notes");
  const [saved, setSaved] = useState(null);
  const [problem, setProblem] = useState(null);
  const save = (id, note) =>
    post(`notes/${encodeURIComponent(id)}`, note).then(
      ({ sessions }) => {
        setSaved(sessions);
        setProblem(null);
      },
      (error) => setProblem(error.message),
    );
  return { notes: saved ?? answer.data?.sessions ?? {}, save, problem: problem ?? answer.data?.problem };
}

export function StarButton({ star, onChange, name }) {
  return html`<button type="button" class=${`quiet star${star ? " tone-warn" : ""}`} aria-pressed=${star}
      aria-label=${`Star ${name}`} title=${star ? "Remove the star" : "Star this session"} onClick=${onChange}>
    ${star ? "★" : "☆"}</button>`;
}

// The star and the note of one session.
export function SessionNote({ id }) {
  const { notes, save, problem } = useNotes();
  const { star = false, note = "" } = notes[id] ?? {};
  const [text, setText] = useState(null);
  useEffect(() => setText(null), [id]);
  const write = () => {
    if (text !== null && text.trim() !== note) save(id, { star, note: text.trim() });
    setText(null);
  };
  return html`<${StarButton} star=${star} name="this session" onChange=${() => save(id, { star: !star, note })} />
    ${
      text === null
        ? html`<button type="button" class="quiet small note-text" title="Write a note"
          onClick=${() => setText(note)}>${note || "+ note"}</button>`
        : html`<input type="text" class="note-text" aria-label="Note" maxlength="2000" value=${text}
          ref=${(box) => box?.focus()} onInput=${(event) => setText(event.target.value)} onBlur=${write}
        onKeyDown=${(event) => {
          if (event.key === "Enter") write();
          else if (event.key === "Escape") setText(null);
        }} />`
    }
    ${problem ? html`<span class="tone-bad" role="alert">${problem}</span>` : null}`;
}
