// Data from the server. Answers have the shapes of the commands' --json output; docs/ui.md lists the routes.
import { useCallback, useEffect, useMemo, useRef, useState } from "./lib.js";

const pageToken = document.querySelector('meta[name="toolspan-token"]').content;

const PAUSE_FACTOR = 3;
const MAX_PAUSE = 15_000;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Return "/api/path?query". Values that are null, undefined, "" or false are left out; arrays are repeated.
export function apiUrl(path, query = {}) {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one === true) params.append(key, "1");
      else if (one !== null && one !== undefined && one !== "" && one !== false) params.append(key, one);
    }
  }
  const text = params.toString();
  return `/api/${path}${text ? `?${text}` : ""}`;
}

async function request(url, options) {
  const response = await fetch(url, { ...options, credentials: "same-origin" });
  if (!response.ok) {
    const problem = await response.json().catch(() => null);
    throw new ApiError(response.status, problem?.error ?? `${response.status} ${response.statusText}`);
  }
  const data = await response.json();
  const warnings = JSON.parse(response.headers.get("X-Toolspan-Warnings") ?? "[]");
  return { data, warnings };
}

// Return the answer to a question. Throws ApiError.
export async function get(path, query, { signal } = {}) {
  return (await request(apiUrl(path, query), { signal })).data;
}

// Ask the server to change something. Throws ApiError.
export async function post(path, body = {}) {
  const headers = { "Content-Type": "application/json", "X-Toolspan-Token": pageToken };
  return (await request(apiUrl(path), { method: "POST", headers, body: JSON.stringify(body) })).data;
}

// While an answer to another question loads, the page shows the last one, and styles can tell that it is old.
let busy = 0;
function addBusy(step) {
  busy += step;
  document.documentElement.toggleAttribute("data-busy", busy > 0);
}

// A hook: { data, error, loading, warnings, reload }. Data of the last answer stays while the next one loads.
// A null path asks nothing. With { live: true }, it asks again when a transcript changes, while the page is visible, and
// pauses three times as long as the answer took, so that an open page costs little while a session grows.
export function useApi(path, query = {}, { live = false } = {}) {
  const url = path === null ? null : apiUrl(path, query);
  const [state, setState] = useState({ url: null, data: undefined, error: null, loading: url !== null, warnings: [] });
  const [count, setCount] = useState(0);
  const reload = useCallback(() => setCount((n) => n + 1), []);
  const next = useRef(0);
  useEffect(() => {
    if (url === null) return undefined;
    const controller = new AbortController();
    const started = performance.now();
    const pause = () => { next.current = performance.now() + Math.min(MAX_PAUSE, PAUSE_FACTOR * (performance.now() - started)); };
    const isChange = state.url !== null && state.url !== url;
    if (isChange) addBusy(1);
    setState((old) => ({ ...old, loading: true }));
    request(url, { signal: controller.signal }).finally(() => isChange && addBusy(-1)).then(
      ({ data, warnings }) => {
        pause();
        setState({ url, data, error: null, loading: false, warnings });
      },
      (error) => {
        if (error.name !== "AbortError") setState({ url, data: undefined, error, loading: false, warnings: [] });
      },
    );
    return () => controller.abort();
  }, [url, count]);
  useEffect(() => {
    if (!live) return undefined;
    let timer = 0;
    let stale = false;
    const ask = () => {
      stale = true;
      if (!document.hidden) timer ||= setTimeout(() => { timer = 0; stale = false; reload(); }, Math.max(0, next.current - performance.now()));
    };
    const show = () => { if (stale) ask(); };
    const stop = onLive(ask, { skipFirst: true });
    document.addEventListener("visibilitychange", show);
    return () => {
      stop();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", show);
    };
  }, [live]);
  return { ...state, reload };
}

// Live data by server-sent events, over one connection for the whole page: sessions and open questions.
const streams = { sessions: { listeners: new Set(), latest: null }, questions: { listeners: new Set(), latest: null }, changed: { listeners: new Set(), latest: null } };
let source = null;
// Changes before this position are in all answers that the page has asked for.
let position = document.querySelector('meta[name="toolspan-position"]').content;

function subscribe(name, listener, { skipFirst = false } = {}) {
  const stream = streams[name];
  let skip = skipFirst && stream.latest === null;
  const entry = (rows, isOld = false) => {
    const isSkipped = skip && isOld;
    skip = false;
    if (!isSkipped) listener(rows);
  };
  stream.listeners.add(entry);
  if (stream.latest !== null && !skipFirst) listener(stream.latest);
  source ??= connect();
  return () => {
    stream.listeners.delete(entry);
    if (Object.values(streams).some(({ listeners }) => listeners.size)) return;
    source?.close();
    source = null;
    for (const one of Object.values(streams)) one.latest = null;
  };
}

function connect() {
  const events = new EventSource(`/api/live?after=${position}`); // after a break, the browser names its last event
  const [answered] = position.split("-");
  for (const [name, stream] of Object.entries(streams)) {
    events.addEventListener(name, (event) => {
      const data = JSON.parse(event.data);
      position = event.lastEventId;
      const isOld = position.split("-")[0] === answered; // no answer has changed since the page was made
      if (name !== "changed") stream.latest = data; // a change is not a state
      for (const one of [...stream.listeners]) one(data, isOld);
    });
  }
  return events;
}

// Call listener(sessions) with the live sessions (as `sessions --live --json`), now if known and after each change of
// a transcript. Returns the function that stops it; the connection is closed when the last listener stops.
export const onLive = (listener, options) => subscribe("sessions", listener, options);

// Call listener(ids) with the ids of the sessions whose files changed, after each change; null if they are not known.
export const onChanged = (listener) => subscribe("changed", listener);

// Call listener(questions) with the questions that wait for a person, now if known and after each change.
export const onQuestions = (listener) => subscribe("questions", listener);

// The live sessions (null until known), the open questions, and how many sessions and questions wait for a person. A session with an open question is waiting, whatever its transcript says.
export function useLive() {
  const [rows, setRows] = useState(null);
  const [questions, setQuestions] = useState([]);
  useEffect(() => onLive(setRows), []);
  useEffect(() => onQuestions(setQuestions), []);
  return useMemo(() => {
    const asking = new Set(questions.map(({ question }) => question.session));
    const sessions = rows?.map((row) => (asking.has(row.id) ? { ...row, status: "waiting" } : row)) ?? null;
    const waiting = questions.length + (sessions ?? []).filter(({ id, status }) => status === "waiting" && !asking.has(id)).length;
    return { sessions, questions, waiting };
  }, [rows, questions]);
}
