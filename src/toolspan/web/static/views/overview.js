// Overview: the last seven days. Every number leads to what it counts.
import { html, useEffect } from "../lib.js";
import { useApi } from "../api.js";
import { Answer } from "../components/messages.js";
import { StateBadge } from "../components/badges.js";
import { day, duration, number, parseTime, words } from "../components/format.js";
import { href } from "../router.js";

export default function Overview({ setTitle }) {
  const answer = useApi("overview", {}, { live: true });
  useEffect(() => setTitle("Overview"), []);
  return html`<${Answer} of=${answer} what="the overview">${(data) => html`<section class="page overview">
    <div class="head"><h1>Overview</h1><p class="summary">${day(parseTime(data.since))} to ${day(parseTime(data.until))}</p></div>
    <div class="grid">
      <div class="card"><h2>Sessions</h2><a class="figure" href="/sessions" data-test="sessions">${number(data.sessions)}</a></div>
      <div class="card"><h2>Calls</h2><p class="figure" data-test="overview-calls">${number(data.calls)}</p>
        <p class="counts">${Object.entries(data.states).map(([state, count]) => html`<span key=${state}><${StateBadge} state=${state} /> ${number(count)}</span>`)}</p></div>
      <div class="card"><h2>Most frequent errors</h2><table class="plain">${data.errors.map((group) => html`<tr key=${group.id}>
        <td class="right tone-bad">${number(group.count)}×</td><td><a href=${href("/errors", {}, { group: group.id })}>${group.program || group.tool}: ${words(group.kind)}</a></td></tr>`)}</table></div>
      <div class="card"><h2>Where the time went</h2><table class="plain">${Object.entries(data.split).filter(([, ms]) => ms).map(([part, ms]) => html`<tr key=${part}>
        <td>${words(part.replace(/_ms$/, ""))}</td><td class="right">${typeof ms === "number" ? duration(ms) : ""}</td></tr>`)}</table></div>
    </div>
  </section>`}<//>`;
}
