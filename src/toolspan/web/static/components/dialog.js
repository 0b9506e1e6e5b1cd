// A question before something is changed: <Dialog title onClose>…</Dialog>. Escape and the backdrop close it.
import { html, useEffect, useRef } from "../lib.js";

export function Dialog({ title, onClose, children, wide = false }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${box} class=${`dialog${wide ? " wide" : ""}`} aria-labelledby="dialog-title"
      onClose=${onClose}
    onClick=${(event) => event.target === box.current && onClose()}>
    <h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}
