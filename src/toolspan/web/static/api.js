// Data from the server. Answers have the shapes of the commands' --json output; docs/ui.md lists the routes.
import { useCallback, useEffect, useMemo, useRef, useState } from "./lib.js";
import { embedded, embeddedAnswer } from "./embedded.js";
import { timeZone } from "./components/zone.js";

const pageValue = (name) => document.querySelector(`meta[name="toolspan-${name}"]`)?.content;

const MAX_PAUSE = 15_000;

export class ApiError extends Error {
  constructor(status, message, code = null) {
    super(message);
    this.status = status;
    this.code = code; // "no_transcripts": no client has been used on this machine
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

// The secret of the server, in the storage of this address and port, which other servers of the machine cannot read.
const SECRET = "toolspan-secret";
let secret = null;
try {
  secret = localStorage.getItem(SECRET);
} catch {
  // the browser forbids the storage: signed in until the page is closed
}
const authorization = () => (secret ? { Authorization: `Bearer ${secret}` } : {});

// Exchange the token of an address for the secret. Throws ApiError.
export async function signIn(token) {
  const answer = await request("/api/sign-in", { method: "POST", body: JSON.stringify({ token }) });
  secret = answer.data.secret;
  try {
    localStorage.setItem(SECRET, secret);
  } catch {
    // as above
  }
}

if (!embedded) {
  addEventListener("storage", ({ key, newValue }) => {
    // another tab has signed in
    if (key === SECRET && newValue) location.reload();
  });
}

// "open", "lost" (the server does not answer) or "signed-out"
let connection = secret || embedded ? "open" : "signed-out";
const connectionListeners = new Set();

function setConnection(value) {
  if (value === connection) return;
  connection = value;
  for (const listener of [...connectionListeners]) listener(value);
}

// A hook: the state of the connection.
export function useConnection() {
  const [state, setState] = useState(connection);
  useEffect(() => {
    setState(connection);
    connectionListeners.add(setState);
    return () => connectionListeners.delete(setState);
  }, []);
  return state;
}

function takeEarlyAnswer(url) {
  const answer = window.earlyAnswers?.get(url);
  window.earlyAnswers?.delete(url);
  return answer;
}

async function request(url, options = {}) {
  if (embedded) return { data: embeddedAnswer(url), warnings: [] };
  let response;
  try {
    const headers = { "Content-Type": "application/json", "X-Toolspan-Zone": timeZone, ...authorization() };
    response = await (takeEarlyAnswer(url) ?? fetch(url, { ...options, headers, credentials: "omit" }));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    setConnection("lost");
    throw new ApiError(0, "toolspan ui does not answer. The page continues when it does.");
  }
  if (response.status === 401) setConnection("signed-out");
  if (!response.ok) {
    const problem = await response.json().catch(() => null);
    throw new ApiError(response.status, problem?.error ?? `${response.status} ${response.statusText}`, problem?.code);
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
  return (await request(apiUrl(path), { method: "POST", body: JSON.stringify(body) })).data;
}

// Download the file at an address of the API. Throws ApiError.
export async function download(address) {
  const { token } = await post("token"); // valid once, because a link cannot send the secret
  const url = new URL(address, location.href);
  url.searchParams.set("token", token);
  Object.assign(document.createElement("a"), { href: url.href, download: "" }).click();
}

// While an answer to another question loads, the page shows the last one, and styles can tell that it is old.
let busy = 0;
function addBusy(step) {
  busy += step;
  document.documentElement.toggleAttribute("data-busy", busy > 0);
}

// A hook: { data, error, loading, warnings, reload }. Data of the last answer stays while the next one loads.
// A null path asks nothing. With { live: true }, it asks again when the server says that answers are outdated, while
// the page is visible, and at most once in `pause` milliseconds.
export function useApi(path, query = {}, { live = false, pause = 0 } = {}) {
  const url = path === null ? null : apiUrl(path, query);
  const [state, setState] = useState({ url: null, data: undefined, error: null, loading: url !== null, warnings: [] });
  const [count, setCount] = useState(0);
  const reload = useCallback(() => setCount((n) => n + 1), []);
  const next = useRef(0);
  useEffect(() => {
    if (url === null) return undefined;
    const controller = new AbortController();
    const isChange = state.url !== null && state.url !== url;
    if (isChange) addBusy(1);
    setState((old) => ({ ...old, loading: true }));
    request(url, { signal: controller.signal })
      .finally(() => isChange && addBusy(-1))
      .then(
        ({ data, warnings }) => {
          next.current = performance.now() + pause;
          setState({ url, data, error: null, loading: false, warnings });
        },
        (error) => {
          if (error.name === "AbortError") return;
          // Without a connection, the last answer stays, and the question is asked again.
          setState((old) => ({
            url,
            data: error.status === 0 && old.url === url ? old.data : undefined,
            error,
            loading: false,
            warnings: [],
          }));
        },
      );
    return () => controller.abort();
  }, [url, count]);
  useEffect(() => {
    if (state.error?.status !== 0) return undefined;
    const retry = (value) => {
      if (value === "open") reload();
    };
    connectionListeners.add(retry);
    return () => connectionListeners.delete(retry);
  }, [state.error]);
  useEffect(() => {
    if (!live) return undefined;
    let timer = 0;
    let stale = false;
    const ask = () => {
      stale = true;
      if (!document.hidden)
        timer ||= setTimeout(
          () => {
            timer = 0;
            stale = false;
            reload();
          },
          Math.max(0, next.current - performance.now()),
        );
    };
    const show = () => {
      if (stale) ask();
    };
    const stop = onOutdated(ask);
    document.addEventListener("visibilitychange", show);
    return () => {
      stop();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", show);
    };
  }, [live]);
  return { ...state, reload };
}

// Live data by server-sent events, over one connection for the whole page: sessions and open questions, with the latest
// data for new listeners, and events that have none.
const STATES = ["sessions", "questions"];
const streams = Object.fromEntries(
  [...STATES, "changed", "outdated"].map((name) => [name, { listeners: new Set(), latest: null }]),
);
let source = null;
// Changes before this position are in all answers that the page has asked for.
let position = pageValue("position");

function subscribe(name, listener) {
  if (embedded) return () => {};
  const stream = streams[name];
  stream.listeners.add(listener);
  if (stream.latest !== null) listener(stream.latest);
  source ??= connect();
  return () => {
    stream.listeners.delete(listener);
    if (Object.values(streams).some(({ listeners }) => listeners.size)) return;
    source?.close();
    source = null;
    for (const one of Object.values(streams)) one.latest = null;
  };
}

const FIRST_PAUSE = 500;
const SILENCE = 50_000; // the server sends something every 20 seconds
let retryNow = () => {};

// Connect again at once, instead of after a pause.
export const reconnect = () => retryNow();

function connect() {
  const closing = new AbortController();
  follow(closing.signal);
  return { close: () => closing.abort() };
}

// Read events until the signal, and connect again if the connection is lost.
async function follow(closing) {
  let pause = FIRST_PAUSE;
  while (!closing.aborted && secret) {
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    closing.addEventListener("abort", abort);
    let timer = setTimeout(abort, SILENCE);
    try {
      const response = await fetch(`/api/live?after=${position}`, {
        headers: authorization(),
        credentials: "omit",
        signal: attempt.signal,
      });
      if (response.status === 401) {
        setConnection("signed-out");
        return;
      }
      if (!response.ok) throw new ApiError(response.status, response.statusText);
      pause = FIRST_PAUSE;
      setConnection("open");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
        clearTimeout(timer);
        timer = setTimeout(abort, SILENCE);
        const events = (rest + chunk.value).split("\n\n");
        rest = events.pop();
        events.forEach(dispatch);
      }
    } catch {
      // it is lost
    }
    clearTimeout(timer);
    closing.removeEventListener("abort", abort);
    if (closing.aborted) return;
    setConnection("lost");
    await new Promise((done) => {
      setTimeout((retryNow = done), pause);
    });
    pause = Math.min(2 * pause, MAX_PAUSE);
  }
}

function dispatch(text) {
  const fields = Object.fromEntries(text.split("\n").map((line) => line.split(/: (.*)/s, 2)));
  const stream = streams[fields.event];
  if (!stream) return;
  position = fields.id;
  const data = JSON.parse(fields.data);
  if (STATES.includes(fields.event)) stream.latest = data;
  for (const listener of [...stream.listeners]) listener(data);
}

// Call listener(sessions) with the live sessions (as `sessions --live --json`), now if known and after each change of
// a transcript. Returns the function that stops it; the connection is closed when the last listener stops.
export const onLive = (listener) => subscribe("sessions", listener);

// Call listener(ids) with the ids of the sessions whose files changed, after each change; null if they are not known.
export const onChanged = (listener) => subscribe("changed", listener);

// Call listener() when the answers to other questions may have changed.
export const onOutdated = (listener) => subscribe("outdated", listener);

// Call listener(questions) with the questions that wait for a person, now if known and after each change.
export const onQuestions = (listener) => subscribe("questions", listener);

// The live sessions (null until known), the open questions, and how many sessions and questions wait for a person. A
// session with an open question is waiting, whatever its transcript says.
export function useLive() {
  const [rows, setRows] = useState(null);
  const [questions, setQuestions] = useState([]);
  useEffect(() => onLive(setRows), []);
  useEffect(() => onQuestions(setQuestions), []);
  return useMemo(() => {
    const asking = new Set(questions.map(({ question }) => question.session));
    const sessions = rows?.map((row) => (asking.has(row.id) ? { ...row, status: "waiting" } : row)) ?? null;
    const waiting =
      questions.length + (sessions ?? []).filter(({ id, status }) => status === "waiting" && !asking.has(id)).length;
    return { sessions, questions, waiting };
  }, [rows, questions]);
}
