// The timeline of a session, kept up to date while it grows: only what changed is asked for and built again.
import { useEffect, useState } from "../lib.js";
import { get, onChanged, onLive } from "../api.js";
import { applyChanges, buildModel, expandColumns } from "./timeline-model.js";
import { WORDS } from "./words.js";

// after an answer, wait this many times as long as it took: an open page costs half a second a minute
const PAUSE_FACTOR = 100;
const MAX_PAUSE = 15_000;

const isRunning = (model) => Boolean(model?.calls.some(({ state }) => WORDS.open_states.includes(state)));

// A hook: { data, error }, where data is the model of timeline-model.js.
export function useTimeline(id) {
  const [state, setState] = useState({ id, data: undefined, error: null });
  useEffect(() => {
    const controller = new AbortController();
    let [data, model, timer, loading, stale, next, status] = [null, undefined, 0, false, false, 0, ""];
    const load = async () => {
      const started = performance.now();
      [loading, stale, timer] = [true, false, 0];
      try {
        const answer = await get(`session/${encodeURIComponent(id)}/timeline`, data ? { after: data.version } : {}, {
          signal: controller.signal,
        });
        const changed = "after" in answer ? applyChanges(data, answer) : null;
        if (!("after" in answer)) model = buildModel((data = expandColumns(answer)));
        else model = changed ? buildModel(data, model, changed) : { ...model, session: data.session };
        setState({ id, data: model, error: null });
      } catch (error) {
        if (error.name === "AbortError") return;
        if (!model || error.status === 404) setState({ id, data: model, error }); // else the next change asks again
      }
      loading = false;
      next = performance.now() + Math.min(MAX_PAUSE, PAUSE_FACTOR * (performance.now() - started));
      if (stale) loadLater();
    };
    const loadLater = () => {
      stale = true;
      if (!document.hidden && !loading) timer ||= setTimeout(load, Math.max(0, next - performance.now()));
    };
    const show = () => {
      if (stale) loadLater();
    };
    setState({ id, data: undefined, error: null });
    load();
    const own = () => [id, ...(model?.session.session_ids ?? [])];
    const stops = [
      onChanged((ids) => {
        if (!ids || own().some((name) => ids.includes(name))) loadLater();
      }),
      onLive((sessions) => {
        const rows = sessions.filter((row) => own().includes(row.id)).map(({ status, pid }) => `${status} ${pid}`);
        if (rows.join() !== status || (!rows.length && isRunning(model))) loadLater();
        status = rows.join();
      }),
    ];
    document.addEventListener("visibilitychange", show);
    return () => {
      stops.forEach((stop) => stop());
      controller.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", show);
    };
  }, [id]);
  return state.id === id ? state : { data: undefined, error: null }; // not the session that was shown before
}
