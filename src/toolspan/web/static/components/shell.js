// What surrounds a view: the theme, and the list of keys.
import { html, useEffect, useRef, useState } from "../lib.js";
import { listKeys } from "../keys.js";

// Browsers may forbid the storage to a page that is a file.
function storage(use) {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

export function ThemeButton() {
  const [theme, setTheme] = useState(storage((store) => store.getItem("theme")) ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    storage((store) => store.setItem("theme", theme));
  }, [theme]);
  // than the system's: the first press changes something
  const other = matchMedia("(prefers-color-scheme: dark)").matches ? "light" : "dark";
  const next = theme === "auto" ? other : theme === other ? (other === "dark" ? "light" : "dark") : "auto";
  const symbol = { auto: "◐", light: "☀", dark: "☾" }[theme];
  return html`<button type="button" class="quiet icon" aria-label=${`Theme: ${theme}; change to ${next}`}
      title=${`Theme: ${theme}`}
    onClick=${() => setTheme(next)}>${symbol}</button>`;
}

export function Help({ onClose }) {
  const box = useRef(null);
  useEffect(() => box.current.showModal(), []);
  const keys = listKeys();
  return html`<dialog ref=${box} class="help" aria-labelledby="keys" onClose=${onClose}
      onClick=${(event) => event.target === box.current && onClose()}>
    <h2 id="keys">Keys</h2>
    <dl>${keys.map(
      ([names, label]) =>
        html`<div key=${names[0]}><dt>
          ${names
            .flatMap((name) => name.split(" "))
            .map(
              (one) => html`<kbd>${one.replace("ArrowDown", "↓").replace("ArrowUp", "↑")}</kbd> `,
            )}</dt><dd>${label}</dd></div>`,
    )}
      </dl>
    <form method="dialog"><button>Close</button></form>
  </dialog>`;
}
