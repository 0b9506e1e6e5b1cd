// A bar on a time axis: where a call lies between the start and the end of its session.
import { html } from "../lib.js";
import { STATES } from "./badges.js";
import { duration } from "./format.js";

export function TimeBar({ start, end, from, to, state }) {
  if (start === null || from === null || to <= from) return html`<span class="timebar"></span>`;
  const share = (time) => Math.max(0, Math.min(100, ((time - from) / (to - from)) * 100));
  const left = share(start);
  const width = Math.max(0.6, share(end ?? start) - left);
  return html`<span class="timebar" title=${end === null ? "" : duration(end - start)}>
    <span class="bar tone-${STATES[state]?.[1] ?? "muted"}" style=${{ left: `${Math.min(left, 99.4)}%`, width: `${width}%` }}></span></span>`;
}
