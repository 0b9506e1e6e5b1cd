// Session: the calls of one session in order, with its facts. Query: sort, call (the selected call).
import { html, useEffect, useMemo } from "../lib.js";
import { useApi } from "../api.js";
import { Table } from "../components/table.js";
import { Facts, StateBadge, clientName } from "../components/badges.js";
import { Answer } from "../components/messages.js";
import { TimeBar } from "../components/timebar.js";
import { baseName, clock, dateTime, duration, firstLine, number, parseTime, plural, short } from "../components/format.js";
import { href } from "../router.js";

export const styles = ["views/session.css"];

// All calls of the turns of `show --json`, subagents included, in order. `depth` counts the agents above a call.
export function callsOf(turns, depth = 0) {
  return turns.flatMap((turn) => turn.items.flatMap((item) => {
    if (item.type === "agent") return callsOf(item.turns, depth + 1);
    if (item.type !== "batch") return [];
    return item.groups.flatMap((group) => group.calls.flatMap((call) => [
      { ...call, depth, start: parseTime(call.requested)?.getTime() ?? null, end: parseTime(call.finished)?.getTime() ?? null },
      ...call.agents.flatMap((agent) => callsOf(agent.turns, depth + 1)),
    ]));
  }));
}

const phoneRow = (row, session) => html`<a class="mono about" href=${href("/call/:id", { id: row.id }, { session })}><b>${row.tool ?? "?"}</b> ${firstLine(row.target || row.message)}</a>
  <${Facts} className="faint" items=${[html`<${StateBadge} state=${row.state} />`, clock(parseTime(row.requested)), duration(row.duration_ms)]} />`;

export default function Session({ params, query, setQuery, setTitle }) {
  const answer = useApi(`session/${encodeURIComponent(params.id)}`, {}, { live: true });
  const session = answer.data?.session;
  const about = firstLine(session?.title || session?.first_prompt) || params.id;
  useEffect(() => setTitle(about), [about]);
  const calls = useMemo(() => (answer.data ? callsOf(answer.data.turns) : []), [answer.data]);
  const [from, to] = useMemo(() => {
    const times = calls.flatMap((call) => [call.start, call.end]).filter((time) => time !== null);
    return times.length ? [times.reduce((a, b) => Math.min(a, b)), times.reduce((a, b) => Math.max(a, b))] : [null, 0];
  }, [calls]);
  const columns = useMemo(() => [
    { key: "time", title: "Time", width: "5.5rem", hide: "phone", cell: (row) => html`<span title=${dateTime(parseTime(row.requested))} class="mono faint">${clock(parseTime(row.requested))}</span>`, value: (row) => row.start },
    { key: "state", title: "State", width: "9rem", cell: (row) => html`<${StateBadge} state=${row.state} />`, value: (row) => row.state },
    { key: "tool", title: "Tool", width: "9rem", cell: (row) => html`<b class="tool depth-${Math.min(row.depth, 4)}">${row.depth ? "↳ " : ""}${row.tool ?? "?"}</b>`, value: (row) => row.tool },
    { key: "about", title: "About", cell: (row) => html`<a class="mono about" href=${href("/call/:id", { id: row.id }, { session: params.id })}>${firstLine(row.target || row.message) || row.id}</a>`, value: (row) => row.target },
    { key: "took", title: "Took", width: "6rem", align: "right", cell: (row) => duration(row.duration_ms), value: (row) => row.duration_ms },
    { key: "when", title: "When", width: "22%", hide: "narrow", cell: (row) => html`<${TimeBar} start=${row.start} end=${row.end} from=${from} to=${to} state=${row.state} />` },
  ], [from, to, params.id]);
  return html`<${Answer} of=${answer} what="the session">${({ session: info }) => html`<section class="page fill session">
    <div class="head"><h1 title=${about}>${about}</h1>
      <${Facts} items=${[
        `${clientName(info.dialect)} ${info.versions.at(-1) ?? ""}`,
        html`<span title=${info.cwd}>${baseName(info.cwd)}${info.git_branch ? ` (${info.git_branch})` : ""}</span>`,
        dateTime(parseTime(info.started_at)),
        duration(parseTime(info.ended_at) - parseTime(info.started_at)),
        html`<span data-test="calls">${plural(calls.filter(({ state }) => state !== "orphan_result").length, "call")}</span>`,
        `${short(Object.values(info.tokens).reduce((total, count) => total + count, 0))} tokens`,
        info.agents > 0 && plural(info.agents, "agent"),
      ]} />
      <p class="counts">${Object.entries(info.calls).map(([state, count]) => html`<span key=${state}><${StateBadge} state=${state} /> ${number(count)}</span>`)}</p></div>
    <${Table} label="Calls" rows=${calls} columns=${columns} sort=${query.sort} onSort=${(sort) => setQuery({ sort })}
      rowKey=${(row) => `${row.file} ${row.id}`} rowHref=${(row) => href("/call/:id", { id: row.id }, { session: params.id })}
      rowClass=${(row) => (row.branch === "abandoned" ? "abandoned" : "")} rowHeight=${30} phone=${(row) => phoneRow(row, params.id)} />
  </section>`}<//>`;
}
