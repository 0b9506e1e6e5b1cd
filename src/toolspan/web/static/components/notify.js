// Notifications of the browser about new questions, if the user switches them on.
import { html, useEffect, useRef, useState } from "../lib.js";
import { escapeText } from "../visible.js";

const KEY = "toolspan-notify";
const isSupported = () => "Notification" in window && isSecureContext;
const isOn = () => isSupported() && Notification.permission === "granted" && localStorage.getItem(KEY) === "yes";

export function NotifyButton() {
  const [on, setOn] = useState(isOn);
  if (!isSupported()) return null;
  const toggle = async () => {
    const wanted = !on && (await Notification.requestPermission()) === "granted";
    localStorage.setItem(KEY, wanted ? "yes" : "no");
    setOn(wanted);
  };
  return html`<button type="button" class="small" aria-pressed=${on} data-test="notify" onClick=${toggle}>
    ${on ? "Notifications are on" : "Notify me of questions"}</button>`;
}

// A hook: notify of questions that are new, unless the user looks at the page. The text of a call is not shown.
export function useNotifications(questions) {
  const seen = useRef(new Set());
  useEffect(() => {
    for (const { id, question } of questions) {
      if (seen.current.has(id)) continue;
      seen.current.add(id);
      if (!isOn() || document.hasFocus()) continue;
      const shown = new Notification("toolspan: a question for you", {
        body: escapeText(`${question.tool}, asked by ${question.client}`),
        tag: `toolspan-${id}`,
      });
      shown.onclick = () => {
        window.focus();
        shown.close();
      };
    }
  }, [questions]);
}
