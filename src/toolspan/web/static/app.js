// The shell: navigation, search, keys, theme, and the view of the current address.
//
// A view is a module views/NAME.js. Its default export is a component with the props
//   params    values of the path: { id }
//   query     values of the query: strings, or arrays for repeated keys
//   setQuery  setQuery({ key: value | null }, { replace: true }): change the query; the component is shown again
//   setTitle  setTitle("text"): the title of the tab
// and it gets its data from api.js. `export const styles = ["views/NAME.css"]` names its style sheets.
import { html, render, useEffect, useRef, useState, useErrorBoundary } from "./lib.js";
import { useConnection, useLive } from "./api.js";
import { Palette } from "./components/palette.js";
import { startTooltips } from "./components/tooltip.js";
import { useKeys } from "./keys.js";
import { ROUTES, href, navigate, setQuery, useRoute } from "./router.js";
import { ConnectionBar, SignIn, signInWithAddress } from "./components/connection.js";
import { useNotifications } from "./components/notify.js";
import { Loading, Problem } from "./components/messages.js";
import { escapeText } from "./visible.js";
import { Help, ThemeButton } from "./components/shell.js";
import { ZoneButton } from "./components/zone.js";
import { loadTools } from "./components/rich.js";

const NAV = ROUTES.filter((route) => route.nav);

// The view to mark in the menu. A search is not the list of sessions, and sharing a session belongs to Sessions.
function menuEntry({ view, parent, query }) {
  if (view === "sessions" && query.q) return null;
  return view === "doctor" && query.tab === "share" ? "sessions" : (parent ?? view);
}

function App() {
  const route = useRoute();
  const [help, setHelp] = useState(false);
  const [palette, setPalette] = useState(false);
  useEffect(() => {
    const listener = (event) => {
      if (event.key !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
      event.preventDefault();
      if (!document.querySelector("dialog[open]")) setPalette(true);
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
  const [title, setTitle] = useState("");
  const search = useRef(null);
  const nav = useRef(null);
  useEffect(
    () => nav.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }),
    [route?.view],
  );
  const { questions, waiting } = useLive();
  useNotifications(questions);
  const isSignedOut = useConnection() === "signed-out";
  useEffect(() => {
    document.title = `${waiting ? `(${waiting}) ` : ""}${title ? `${escapeText(title)} · ` : ""}toolspan`;
  }, [waiting, title]);
  useKeys({
    "/": { label: "search", run: () => search.current.focus() },
    "?": { label: "show or hide the keys", run: () => setHelp((shown) => !shown) },
    Escape: {
      label: "close, leave a field",
      run: () => {
        setHelp(false);
        document.activeElement?.blur();
      },
    },
    ...Object.fromEntries(
      NAV.map(({ key, nav, pattern }) => [`g ${key}`, { label: nav, run: () => navigate(pattern) }]),
    ),
  });
  return html`
    <a class="skip" href="#main">Skip to content</a>
    <header class="top">
      <a class="brand" href="/"><img src=${new URL("icon.svg", import.meta.url).pathname} alt="" width="22"
        height="22" /><span>toolspan</span></a>
      <nav aria-label="Views" ref=${nav}>${NAV.map(
        ({ pattern, view, nav }) =>
          html`<a key=${view} href=${pattern}
          aria-current=${route && menuEntry(route) === view ? "page" : undefined}>${nav}${
            view === "live" && waiting ? html`<span class="waiting" title="waiting for you">${waiting}</span>` : null
          }
            </a>`,
      )}</nav>
      <form class="search" role="search" onSubmit=${(event) => {
        event.preventDefault();
        navigate(href("/sessions", {}, { q: search.current.value }));
      }}>
        <input ref=${search} type="search" name="q" aria-label="Search all sessions" placeholder="Search  /"
          title="Search in all sessions (/); Ctrl-K goes to a view, session, file or cause" value=${
            route?.query.q ?? ""
          } />
      </form>
      <${ZoneButton} /><${ThemeButton} />
      <button type="button" class="quiet icon" aria-label="Keys" title="Keys (?)"
        onClick=${() => setHelp(!help)}>?</button>
    </header>
    <${ConnectionBar} />
    <main id="main" tabindex="-1">
      ${
        isSignedOut
          ? html`<${SignIn} />`
          : route
            ? html`<${View} key=${route.view} route=${route}
            setTitle=${setTitle} />`
            : html`<${Problem} error=${{ status: 404, message: `There is no page ${location.pathname}.` }} />`
      }
    </main>
    ${help ? html`<${Help} onClose=${() => setHelp(false)} />` : null}
    ${palette && !isSignedOut ? html`<${Palette} onClose=${() => setPalette(false)} />` : null}`;
}

function View({ route, setTitle }) {
  const [loaded, setLoaded] = useState(null);
  const [failure, resetFailure] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    let shown = true;
    import(`./views/${route.view}.js`).then(
      async (module) => {
        const sheets = await Promise.all((module.styles ?? []).map(loadStyle));
        if (!shown) return;
        // Views use the same class names, so the style sheets of other views are switched off.
        for (const link of document.querySelectorAll("link[data-view]")) link.disabled = !sheets.includes(link);
        setLoaded({ view: module.default });
        // what fails is loaded when it is needed
        (window.requestIdleCallback ?? setTimeout)(() => prefetch().catch(() => {}));
      },
      (error) => shown && setLoaded({ error }),
    );
    return () => {
      shown = false;
    };
  }, [route.view]);
  useEffect(() => {
    if (failure) resetFailure();
  }, [route.path]);
  if (failure || loaded?.error) return html`<${Problem} error=${failure ?? loaded.error} />`;
  if (!loaded) return html`<${Loading} what="the view" />`;
  return html`<${loaded.view} params=${route.params} query=${route.query} setQuery=${setQuery} setTitle=${setTitle} />`;
}

let isPrefetched = false;

// perf: load the other views while the page is idle, so that the first click on a link waits only for its data.
async function prefetch() {
  if (isPrefetched) return;
  isPrefetched = true;
  const modules = await Promise.all(ROUTES.map(({ view }) => import(`./views/${view}.js`)));
  for (const name of new Set(modules.flatMap(({ styles }) => styles ?? []))) {
    const address = new URL(name, import.meta.url).pathname;
    document.head.append(
      Object.assign(document.createElement("link"), { rel: "prefetch", as: "style", href: address }),
    );
  }
  await loadTools();
}

// Return the <link> of a style sheet, once it is loaded.
function loadStyle(name) {
  const address = new URL(name, import.meta.url).pathname;
  const found = document.querySelector(`link[rel=stylesheet][href="${address}"]`);
  if (found) return found;
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: address });
  link.dataset.view = "";
  return new Promise((done) => {
    link.onload = link.onerror = () => done(link);
    document.head.append(link);
  });
}

startTooltips();
await signInWithAddress();
render(html`<${App} />`, document.getElementById("app"));
document.documentElement.dataset.ready = "yes";
