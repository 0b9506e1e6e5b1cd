// The page of one exported session: the session view, with its data in the page.
import { html, render, useState } from "./lib.js";
import { embedded } from "./embedded.js";
import { useKeys } from "./keys.js";
import { setQuery, useRoute } from "./router.js";
import { Help, ThemeButton } from "./components/shell.js";
import Session from "./views/session.js";

function Page() {
  const { params, query } = useRoute();
  const [help, setHelp] = useState(false);
  useKeys({
    "/": { label: "find", run: () => document.querySelector("input[type=search]").focus() },
    "?": { label: "show or hide the keys", run: () => setHelp((shown) => !shown) },
  });
  return html`
    <header class="top"><span class="brand"><img src=${document.querySelector("link[rel=icon]").href} alt="" width="22"
      height="22" /><span>toolspan</span></span>
      <span class="exported faint hide-narrow">An exported session. This page makes no requests.</span>
      <${ThemeButton} />
      <button type="button" class="quiet icon" aria-label="Keys" title="Keys (?)"
        onClick=${() => setHelp(!help)}>?</button>
    </header>
    <main id="main" tabindex="-1">
      ${embedded.notices.map((text) => html`<p class="notice">${text}</p>`)}
      <${Session} params=${params} query=${query} setQuery=${setQuery} setTitle=${() => {}} />
    </main>
    ${help ? html`<${Help} onClose=${() => setHelp(false)} />` : null}`;
}

render(html`<${Page} />`, document.getElementById("app"));
document.documentElement.dataset.ready = "yes";
