// Every view is a URL: the path names the view and its subject, the query holds filters, order, range and selection.
// An exported page has one view, and its query is in the fragment of the address.
import { useEffect, useState } from "./lib.js";
import { embedded } from "./embedded.js";

// Path patterns and the module below views/ that shows them. `nav` puts a view into the navigation, `name` only into
// the palette.
export const ROUTES = [
  { pattern: "/", view: "overview", nav: "Overview", key: "o" },
  { pattern: "/digest", view: "digest", parent: "overview", name: "Digest" },
  { pattern: "/sessions", view: "sessions", nav: "Sessions", key: "s" },
  { pattern: "/session/:id", view: "session", parent: "sessions" },
  { pattern: "/call/:id", view: "call", parent: "sessions" },
  { pattern: "/calls", view: "calls", nav: "Calls", key: "a" },
  { pattern: "/errors", view: "errors", nav: "Errors", key: "e" },
  { pattern: "/usage", view: "usage", nav: "Usage", key: "u" },
  { pattern: "/files", view: "files", nav: "Files", key: "f" },
  { pattern: "/compare", view: "compare", nav: "Compare", key: "c" },
  { pattern: "/lists", view: "lists", nav: "Lists", key: "i" },
  { pattern: "/live", view: "live", nav: "Live", key: "l" },
  { pattern: "/doctor", view: "doctor", nav: "Doctor", key: "d" },
];

// Return { view, params, query, path } of an address, or null if no route matches.
export function parse(path, search) {
  const parts = path.split("/").filter(Boolean);
  for (const route of ROUTES) {
    const names = route.pattern.split("/").filter(Boolean);
    if (names.length !== parts.length) continue;
    const params = {};
    const matches = names.every((name, n) => {
      if (!name.startsWith(":")) return name === parts[n];
      try {
        params[name.slice(1)] = decodeURIComponent(parts[n]);
      } catch {
        return false;
      }
      return true;
    });
    if (matches) return { view: route.view, parent: route.parent, params, query: parseQuery(search), path };
  }
  return null;
}

// A key that occurs once is a string, one that is repeated an array.
function parseQuery(search) {
  const query = {};
  for (const [key, value] of new URLSearchParams(search)) {
    query[key] = key in query ? [].concat(query[key], value) : value;
  }
  return query;
}

// Return the address of a view: href("/session/:id", { id }, { call }). An exported page has no other views.
export function href(pattern, params = {}, query = {}) {
  if (embedded && !(pattern === SESSION && params.id === embedded.id)) return undefined;
  const path = pattern.replace(/:(\w+)/g, (_, name) => encodeURIComponent(params[name]));
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const one of [].concat(value ?? [])) if (one !== "") search.append(key, one);
  }
  const text = search.toString();
  if (embedded) return `#${text}`;
  return text ? `${path}?${text}` : path;
}

const changed = new Set();

// Go to an address of the UI; `replace` does not add to the history (typing in a filter).
export function navigate(url, { replace = false } = {}) {
  const target = new URL(url, location.href);
  if ((!embedded && target.origin !== location.origin) || target.href === location.href) return;
  rememberInHistory("scroll", scrollPositions());
  history[replace ? "replaceState" : "pushState"](replace ? history.state : null, "", target);
  for (const listener of [...changed]) listener();
}

// Values of this entry of the history, such as the scroll positions: Back restores them.
export const rememberedInHistory = (key) => history.state?.[key];
export const rememberInHistory = (key, value) => history.replaceState({ ...history.state, [key]: value }, "");

const BOXES = ["main", ".table-box", ".list-box"];
const RESTORE_MS = 15_000;
const scrollPositions = () => BOXES.map((name) => document.querySelector(name)?.scrollTop ?? 0);

// Scroll to where the user left this entry of the history, as soon as there is enough to scroll, unless the user
// scrolls.
function restoreScroll() {
  const positions = rememberedInHistory("scroll");
  if (!positions?.some(Boolean)) return;
  const end = performance.now() + RESTORE_MS;
  let isStopped = false;
  const stop = () => {
    isStopped = true;
  };
  for (const name of ["wheel", "keydown", "pointerdown"]) addEventListener(name, stop, { once: true, capture: true });
  const left = new Set(positions.flatMap((top, n) => (top ? [n] : [])));
  const step = () => {
    for (const n of left) {
      const box = document.querySelector(BOXES[n]);
      if (!box || box.scrollHeight - box.clientHeight < positions[n] - 1) continue;
      box.scrollTop = positions[n];
      left.delete(n);
    }
    if (left.size && !isStopped && performance.now() < end) requestAnimationFrame(step);
  };
  requestAnimationFrame(() => requestAnimationFrame(step)); // the view of the address is drawn first
}

if (!embedded) {
  history.scrollRestoration = "manual";
  addEventListener("popstate", restoreScroll);
  addEventListener("pagehide", () => rememberInHistory("scroll", scrollPositions()));
  restoreScroll();
}

const SESSION = "/session/:id";
const currentAddress = () =>
  embedded
    ? [`/session/${encodeURIComponent(embedded.id)}`, location.hash.slice(1)]
    : [location.pathname, location.search];

// Change keys of the query of the current address; null removes a key.
export function setQuery(changes, options = { replace: true }) {
  const [path, search] = currentAddress();
  const { query } = parse(path, search) ?? { query: {} };
  const changed = { ...query, ...changes };
  navigate(embedded ? href(SESSION, embedded, changed) : href(path, {}, changed), options);
}

// A hook: the current route, or null.
export function useRoute() {
  const [address, setAddress] = useState(currentAddress().join("?"));
  useEffect(() => {
    const listener = () => setAddress(currentAddress().join("?"));
    const events = ["popstate", "hashchange"];
    changed.add(listener);
    events.forEach((name) => addEventListener(name, listener));
    return () => {
      changed.delete(listener);
      events.forEach((name) => removeEventListener(name, listener));
    };
  }, []);
  const [path, search = ""] = address.split(/\?(.*)/s);
  return parse(path, search);
}

// Links within the UI change the view without loading the page again.
document.addEventListener("click", (event) => {
  if (
    embedded ||
    event.defaultPrevented ||
    event.button !== 0 ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey
  )
    return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (!parse(link.pathname, link.search)) return;
  event.preventDefault();
  navigate(link.href);
});
