// Every view is a URL: the path names the view and its subject, the query holds filters, order, range and selection.
import { useEffect, useState } from "./lib.js";

// Path patterns and the module below views/ that shows them. `nav` puts a view into the navigation.
export const ROUTES = [
  { pattern: "/", view: "overview", nav: "Overview", key: "o" },
  { pattern: "/sessions", view: "sessions", nav: "Sessions", key: "s" },
  { pattern: "/session/:id", view: "session", parent: "sessions" },
  { pattern: "/call/:id", view: "call", parent: "sessions" },
  { pattern: "/calls", view: "calls", nav: "Calls", key: "a" },
  { pattern: "/errors", view: "errors", nav: "Errors", key: "e" },
  { pattern: "/usage", view: "usage", nav: "Usage", key: "u" },
  { pattern: "/files", view: "files", nav: "Files", key: "f" },
  { pattern: "/compare", view: "compare", nav: "Compare", key: "c" },
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

// Return the address of a view: href("/session/:id", { id }, { call }).
export function href(pattern, params = {}, query = {}) {
  const path = pattern.replace(/:(\w+)/g, (_, name) => encodeURIComponent(params[name]));
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const one of [].concat(value ?? [])) if (one !== "") search.append(key, one);
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

const changed = new Set();

// Go to an address of the UI; `replace` does not add to the history (typing in a filter).
export function navigate(url, { replace = false } = {}) {
  const target = new URL(url, location.href);
  if (target.origin !== location.origin || target.href === location.href) return;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  for (const listener of [...changed]) listener();
}

// Change keys of the query of the current address; null removes a key.
export function setQuery(changes, options = { replace: true }) {
  const { query } = parse(location.pathname, location.search) ?? { query: {} };
  navigate(href(location.pathname, {}, { ...query, ...changes }), options);
}

// A hook: the current route, or null.
export function useRoute() {
  const [address, setAddress] = useState(location.pathname + location.search);
  useEffect(() => {
    const listener = () => setAddress(location.pathname + location.search);
    changed.add(listener);
    addEventListener("popstate", listener);
    return () => {
      changed.delete(listener);
      removeEventListener("popstate", listener);
    };
  }, []);
  const [path, search = ""] = address.split(/\?(.*)/s);
  return parse(path, search);
}

// Links within the UI change the view without loading the page again.
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (!parse(link.pathname, link.search)) return;
  event.preventDefault();
  navigate(link.href);
});
