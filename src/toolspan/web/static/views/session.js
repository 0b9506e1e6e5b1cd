// Session: a waterfall that stays in view, and below it the conversation with all calls.
// Query: call, line, of (the selected place), state, tool, agent, find (filters), range, zoom (milliseconds after the
// start), text (none, line, full, read), thinking, closed (subagents), idle (show idle time as long as it was), unfold.
import { Component, html, useCallback, useEffect, useMemo, useRef, useState } from "../lib.js";
import { get, useApi, useLive } from "../api.js";
import { embedded } from "../embedded.js";
import { Badge, Facts, StateBadge, clientName, usageTokens } from "../components/badges.js";
import {
  baseName,
  clock,
  cost,
  dateTime,
  duration,
  firstLine,
  number,
  parseTime,
  plural,
  short,
  shortId,
  words,
} from "../components/format.js";
import { Answer, Empty, Loading } from "../components/messages.js";
import { markHits } from "../components/highlight-matches.js";
import { SessionNote } from "../components/notes.js";
import { Question, useNow, useQuestionKeys } from "../components/question.js";
import { Markdown } from "../components/rich.js";
import {
  FLAGS,
  buildItems,
  hiddenAgents,
  isResume,
  makeFilter,
  makeScale,
  matchCalls,
  overlaps,
  rowAtLine,
} from "../components/timeline-model.js";
import { useTimeline } from "../components/timeline-data.js";
import { VirtualList } from "../components/virtual-list.js";
import { Waterfall } from "../components/waterfall.js";
import { STATES, WORDS, isUnsuccessful, kindName } from "../components/words.js";
import { useKeys } from "../keys.js";
import { href, navigate } from "../router.js";
import { CallPanel } from "./call.js";

export const styles = ["components/question.css", "views/call.css", "views/session.css"];

const TOKENS = ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
const ROW = 29;
const TEXT_ROW = 150;
const USAGE_PAUSE = 15_000; // perf: the requests of all sessions are read, because forks and resumes copy them
const list = (value) => (value === undefined ? [] : [].concat(value));
const interval = (text) => {
  const parts = /^(-?\d+)~(-?\d+)$/.exec(text ?? "");
  return parts && Number(parts[1]) < Number(parts[2]) ? [Number(parts[1]), Number(parts[2])] : null;
};
const intervalText = (pair) =>
  pair ? `${Math.round(pair[0])}~${Math.max(Math.round(pair[1]), Math.round(pair[0]) + 1)}` : null;

export default function Session({ params, query, setQuery, setTitle }) {
  const answer = useTimeline(params.id);
  const model = answer.data;
  const [slow, setSlow] = useState(false); // then tell at least what is loading
  useEffect(() => {
    if (model) return undefined;
    const timer = setTimeout(() => setSlow(true), 500);
    return () => clearTimeout(timer);
  }, [Boolean(model)]);
  // perf: loads together with the timeline
  const usage = useApi("usage", { by: "session", session: params.id }, { live: true, pause: USAGE_PAUSE });
  const known = useApi(slow && !model ? "sessions" : null).data?.find(({ id }) => id === params.id);
  const info = model?.session;
  const about = firstLine(info?.title || info?.first_prompt || known?.title || known?.first_prompt) || params.id;
  useEffect(() => setTitle(about), [about]);
  if (!answer.error && !model) {
    return html`<section class="page"><div class="head"><h1>${about}</h1></div>
      <${Loading} what=${known ? plural(known.calls, "call") : "the session"} /></section>`;
  }
  return html`<${Answer} of=${answer} what="the session">
    ${() =>
      html`<${SessionPage} key=${params.id} id=${params.id} model=${model} usage=${usage} about=${about}
          query=${query} setQuery=${setQuery} />`}<//>`;
}

function SessionPage({ id, model, usage, about, query, setQuery }) {
  const control = useRef(null);
  const chart = useRef(null);
  const split = useRef(null);
  const marked = query.q ?? (embedded ? query.find : undefined);
  useEffect(() => markHits(split.current, marked, ".panel .call-detail"), [marked, query.call]);
  const [opened, setOpened] = useState(new Set());
  const filterKey = JSON.stringify([
    query.state,
    query.tool,
    query.agent,
    query.find,
    query.range,
    query.text,
    query.thinking,
    query.closed,
  ]);
  const closed = useMemo(
    () =>
      new Set(
        list(query.closed)
          .flatMap((text) => text.split(","))
          .map(Number),
      ),
    [query.closed],
  );
  const range = useMemo(() => interval(query.range), [query.range]);
  const zoom = useMemo(() => interval(query.zoom), [query.zoom]);
  const reading = query.text === "read"; // messages as a conversation, with the calls between them folded
  const text = reading ? "full" : ["none", "full"].includes(query.text) ? query.text : "line";
  const callFilter = { states: new Set(list(query.state)), tool: query.tool ?? "", find: query.find ?? "" };
  // perf: tested once for the list and the waterfall, which is drawn again only if a filter on calls changes
  const matches = useMemo(
    () => matchCalls(model, callFilter),
    [model, JSON.stringify([query.state, query.tool, query.find])],
  );
  const passes = useMemo(
    () =>
      makeFilter({
        ...callFilter,
        matches,
        agent: query.agent === undefined ? null : Number(query.agent),
        range,
        text,
        thinking: query.thinking === "1",
        hidden: hiddenAgents(model.agentOrder, closed),
      }),
    [model, filterKey],
  );
  passes.key = filterKey;
  const { items, shown } = useMemo(
    () => buildItems(model, passes, { unfold: query.unfold === "1", opened, reading }),
    [model, passes, query.unfold, opened, reading],
  );
  const scale = useMemo(() => makeScale(model, query.idle !== "1"), [model, query.idle]);
  const selected = useMemo(() => {
    if (query.call) return model.calls.find((call) => call.id === query.call) ?? null;
    return query.line ? rowAtLine(model, Number(query.line), query.of) : null;
  }, [model, query.call, query.line, query.of]);
  const place = (row) =>
    items.findIndex(
      (item) =>
        item.row === row || ((item.type === "fold" || item.type === "group") && !item.open && item.rows.includes(row)),
    );

  const select = useCallback(
    (row) =>
      setQuery(
        row?.type === "call"
          ? { call: row.id, line: null, of: null }
          : { call: null, line: row?.line ?? null, of: row && row.thread ? model.agents[row.thread].id : null },
        { replace: true },
      ),
    [model],
  );
  const moveTo = (row) => {
    if (!row) return;
    select(row);
    if (zoom && row.at !== null && (row.at < zoom[0] || row.at > zoom[1])) {
      // move the waterfall along
      const half = (scale.place(zoom[1]) - scale.place(zoom[0])) / 2;
      const centre = Math.min(1 - half, Math.max(half, scale.place(row.at)));
      setQuery({ zoom: intervalText([scale.time(centre - half), scale.time(centre + half)]) });
    }
    control.current?.scrollTo(place(row), "nearest");
  };
  const step = (way, wanted) => {
    const from = selected ? selected.index : way > 0 ? -1 : model.rows.length;
    const rows = shown.filter((row) => row.type !== "agent" && wanted(row));
    moveTo(way > 0 ? rows.find((row) => row.index > from) : rows.findLast((row) => row.index < from));
  };
  const toggle = useCallback(
    (agent) => {
      const next = new Set(closed);
      if (!next.delete(agent)) next.add(agent);
      setQuery({ closed: [...next].sort((a, b) => a - b).join(",") || null }, { replace: true });
    },
    [closed],
  );
  const zoomBy = (factor) => {
    const [from, to] = zoom ?? [model.from, model.to];
    const [left, right] = [scale.place(from), scale.place(to)];
    const centre =
      selected && selected.at !== null ? Math.min(right, Math.max(left, scale.place(selected.at))) : (left + right) / 2;
    const [one, other] = [
      Math.max(0, centre - (centre - left) * factor),
      Math.min(1, centre + (right - centre) * factor),
    ];
    setQuery({ zoom: other - one > 0.999 ? null : intervalText([scale.time(one), scale.time(other)]) });
  };
  useKeys({
    j: { label: "next row", run: () => step(1, () => true) },
    k: { label: "previous row", run: () => step(-1, () => true) },
    ArrowDown: { label: "next row", run: () => step(1, () => true) },
    ArrowUp: { label: "previous row", run: () => step(-1, () => true) },
    n: { label: "next unsuccessful call", run: () => step(1, isUnsuccessful) },
    p: { label: "previous unsuccessful call", run: () => step(-1, isUnsuccessful) },
    ...(embedded
      ? {}
      : {
          Enter: {
            label: "open the call",
            run: () => selected?.type === "call" && navigate(href("/call/:id", { id: selected.id }, { session: id })),
          },
        }),
    "+": { label: "zoom in", run: () => zoomBy(0.5) },
    "-": { label: "zoom out", run: () => zoomBy(2) },
    0: { label: "whole session", run: () => setQuery({ zoom: null }) },
    End: { label: "go to the end, and follow new rows", run: () => toEnd() },
    z: { label: "zoom to the range", run: () => range && setQuery({ zoom: query.range }) },
    Escape: {
      label: "close the call, clear the range",
      run: () => {
        document.activeElement?.blur();
        setQuery(query.call || query.line ? { call: null, line: null, of: null } : { range: null });
      },
    },
  });

  // Open at the selected place.
  const first = useRef(true);
  useEffect(() => {
    if (selected && first.current) control.current?.scrollTo(place(selected), "center");
    first.current = false;
  }, [items]);
  // New rows of a session that grows: follow them at the end of the list, else say how many there are.
  const [news, setNews] = useState(0);
  const last = useRef({ model, passes, count: shown.length, items, isAtEnd: false });
  useEffect(() => {
    const { model: oldModel, passes: oldPasses, count, isAtEnd } = last.current;
    const isGrown = model !== oldModel && shown.length > count && passes.key === oldPasses.key;
    if (isGrown && isAtEnd) control.current?.scrollTo(items.length - 1, "nearest");
    else if (isGrown) setNews((n) => n + shown.length - count);
    last.current = {
      model,
      passes,
      count: shown.length,
      items,
      isAtEnd: isGrown ? isAtEnd : control.current?.isAtEnd(),
    };
  }, [items]);
  const toEnd = () => {
    setNews(0);
    control.current?.scrollTo(items.length - 1, "nearest");
  };
  const onVisible = useCallback(
    (from, to) => {
      if (last.current.items === items) {
        // else the list has not followed the new rows yet
        last.current.isAtEnd = to >= items.length - 1;
        if (last.current.isAtEnd) setNews(0);
      }
      let [start, end] = [Infinity, -Infinity];
      for (const { row } of items.slice(from, to + 1)) {
        if (row.at === null) continue;
        start = Math.min(start, row.at);
        end = Math.max(end, row.type === "agent" ? row.at : (row.end ?? row.at));
      }
      chart.current?.setVisible(start > end ? null : [start, end]);
    },
    [items],
  );
  const heightOf = useMemo(
    () => (item) =>
      item.type === "row" && item.row.type === "message" && text === "full"
        ? Math.min(TEXT_ROW, 40 + item.row.text.length / 4)
        : ROW,
    [text],
  );
  const draw = useCallback(
    (item) =>
      html`<${Item} item=${item} session=${id} model=${model} full=${text === "full"}
        selected=${item.row === selected && item.type === "row"}
    closed=${item.row.type === "agent" && closed.has(item.row.n)} onSelect=${select} onToggle=${toggle}
    onFold=${(row) =>
      setOpened((old) => {
        const next = new Set(old);
        if (!next.delete(row.key)) next.add(row.key);
        return next;
      })} />`,
    [id, model, text, selected, closed, select, toggle],
  );

  return html`<section class=${`page fill session${query.call ? " with-panel" : ""}`}>
    <${Head} id=${id} model=${model} usage=${usage} about=${about} query=${query} setQuery=${setQuery} />
    ${embedded ? null : html`<${Questions} ids=${[id, ...(model.session.session_ids ?? [])]} />`}
    ${
      model.to > model.from
        ? html`<${Waterfall} model=${model} scale=${scale} zoom=${zoom} range=${range}
          control=${chart} selected=${selected?.type === "call" ? selected : null} closed=${closed}
      matches=${matches} onZoom=${(pair) => setQuery({ zoom: intervalText(pair) })}
        onRange=${(pair) => setQuery({ range: intervalText(pair) })}
        onSelect=${(call) => {
          select(call);
          control.current?.scrollTo(place(call), "center");
        }} onToggle=${toggle} />`
        : null
    }
    <${Tools} model=${model} query=${query} setQuery=${setQuery} scale=${scale} zoomBy=${zoomBy}
      zoom=${zoom} shown=${shown} step=${(way) => step(way, isUnsuccessful)} />
    ${range ? html`<${RangeBar} model=${model} range=${range} query=${query} setQuery=${setQuery} />` : null}
    <div class="split" ref=${split}>
      ${
        items.length
          ? html`<${VirtualList} items=${items} keyOf=${(item) => item.key} heightOf=${heightOf}
            render=${draw} label="Calls and messages" control=${control} onVisible=${onVisible} />`
          : html`<${Empty}>Nothing matches these filters.<//>`
      }
      ${
        news
          ? html`<button type="button" class="primary new-rows" data-test="news" onClick=${toEnd}>
          ${plural(news, "new row")} ↓</button>`
          : null
      }
      ${
        query.call
          ? html`<aside class="panel" aria-label="Selected call" tabindex="0">
          <${CallPanel} id=${query.call} row=${selected} model=${model} session=${id} actions=${html`
        ${embedded ? null : html`<a href=${href("/call/:id", { id: query.call }, { session: id })}>Open as a page</a>`}
          <button type="button" class="quiet icon" aria-label="Close the call" title="Close (Escape)"
          onClick=${() => setQuery({ call: null })}>✕</button>`} /></aside>`
          : null
      }
    </div>
  </section>`;
}

// The questions of this session, which can be answered here, too.
function Questions({ ids }) {
  const questions = useLive().questions.filter(({ question }) => ids.includes(question.session));
  const now = useNow(questions.length > 0);
  useQuestionKeys();
  return questions.length
    ? html`<div class="questions">
    ${questions.map((entry) => html`<${Question} key=${entry.id} entry=${entry} now=${now} />`)}</div>`
    : null;
}

// What the time was used for, the largest part first: [[name, ms]].
function sumParts({ slices: { count, starts, ends, parts, names } }, [from, to] = [-Infinity, Infinity]) {
  const sums = {};
  for (let n = 0; n < count; n += 1) {
    const ms = Math.min(ends[n], to) - Math.max(starts[n], from);
    if (ms > 0) sums[parts[n]] = (sums[parts[n]] ?? 0) + ms;
  }
  return Object.entries(sums)
    .map(([index, ms]) => [names[index], ms])
    .sort((a, b) => b[1] - a[1]);
}

function Head({ id, model, usage, about, query, setQuery }) {
  const info = model.session;
  const copies = useApi(`session/${encodeURIComponent(id)}/copies`).data ?? [];
  const used = embedded ? info.tokens : usage.data?.find(({ session }) => session === id);
  const spent = used?.cost_usd;
  const chosen = list(query.state);
  const total = Object.entries(info.calls).reduce(
    (sum, [state, count]) => sum + (state === "orphan_result" ? 0 : count),
    0,
  );
  const pick = (state) =>
    setQuery({ state: chosen.includes(state) ? chosen.filter((one) => one !== state) : [...chosen, state] });
  const parts = useMemo(() => sumParts(model), [model]);
  return html`<div class="head"><h1 title=${about}>${about}</h1>
    ${
      embedded
        ? null
        : html`<${SessionNote} id=${id} /><span class="links">
        <a class="small-button" href=${href("/doctor", {}, { session: id, tab: "share" })}
          title="Export this session without secrets">Share</a>
      <a class="small-button" href=${href("/sessions", {}, { mark: id })}
        title="Compare with another session">Compare</a></span>`
    }
    <${Facts} items=${[
      `${clientName(info.client)} ${info.versions.at(-1) ?? ""}`.trim(),
      info.models.length > 0 && info.models.join(", "),
      info.cwd &&
        html`<span title=${info.cwd}>${baseName(info.cwd)}${info.git_branch ? ` (${info.git_branch})` : ""}
        </span>`,
      dateTime(parseTime(info.started_at)),
      info.ended_at !== info.started_at && duration(parseTime(info.ended_at) - parseTime(info.started_at)),
      html`<span data-test="calls">${plural(total, "call")}
        ${copies.map(
          (one) =>
            html`<span key=${one.session}
              title="Lists count a call once: in the session in which it ran.">, ${number(one.calls)} ${
                one.is_original ? "copied from" : "counted in"
              } <a href=${href("/session/:id", { id: one.session })}>
          ${firstLine(one.title || one.first_prompt, 60) || shortId(one.session)}</a></span>`,
        )}</span>`,
      info.agents > 0 && plural(info.agents, "subagent"),
      info.concurrency > 1 && `up to ${info.concurrency} at once`,
      used &&
        html`<span title=${TOKENS.map((name) => `${words(name)} ${number(used[name])}`).join(", ")}>
        ${short(usageTokens(used))} tokens</span>`,
      model.peak > 0 &&
        html`<span title="the largest request of the session">context up to ${short(model.peak)}
        ${model.window ? ` of ${short(model.window)}` : ""}</span>`,
      spent !== undefined && spent !== null && cost(spent),
      info.compactions > 0 && plural(info.compactions, "compaction"),
      info.forked_from &&
        html`<a href=${href("/session/:id", { id: info.forked_from })}>
        fork of ${shortId(info.forked_from)}</a>`,
      info.findings > 0 &&
        html`<a href=${href("/doctor", {}, { session: id })}>${plural(info.findings, "finding")}
        </a>`,
    ]} />
    <div class="chips" role="group" aria-label="States">
      ${Object.entries(info.calls)
        .sort((a, b) => b[1] - a[1])
        .map(
          ([state, count]) =>
            html`<button type="button" key=${state}
            class=${`chip tone-${STATES[state]?.[1] ?? "muted"}`}
      aria-pressed=${chosen.includes(state)} title=${WORDS.meanings[state]} onClick=${() => pick(state)}>
        <${StateBadge} state=${state} /> ${number(count)}</button>`,
        )}
      <span class="parts hide-narrow" title="what the time was used for">
        ${parts.map(
          ([part, ms]) =>
            html`<span key=${part} class=${`legend part-${part}`}>${words(part)} ${duration(ms)}
            </span>`,
        )}</span></div></div>`;
}

function Tools({ model, query, setQuery, scale, zoom, zoomBy, shown, step }) {
  const counts = useMemo(() => {
    const map = new Map();
    for (const { tool } of model.calls) map.set(tool, (map.get(tool) ?? 0) + 1);
    return [...map].sort((a, b) => b[1] - a[1]);
  }, [model]);
  const timer = useRef(0);
  const type = (event) => {
    const { value } = event.target;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ find: value || null }), 150);
  };
  const option = (name, key, values) =>
    html`<select aria-label=${name} value=${query[key] ?? ""}
      onChange=${(event) => setQuery({ [key]: event.target.value || null })}>
    ${values.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}</select>`;
  const unsuccessful = model.calls.some(isUnsuccessful);
  const filtered = query.state || query.tool || query.agent || query.find || query.range;
  return html`<div class="tools" role="toolbar" aria-label="Session">
    <input type="search" aria-label="Find in this session" placeholder="Find in this session" value=${query.find ?? ""}
      onInput=${type} />
    ${option("Tool", "tool", [["", "All tools"], ...counts.map(([tool, count]) => [tool, `${tool} (${count})`])])}
    ${
      model.agents.length > 1
        ? option("Agent", "agent", [
            ["", "All agents"],
            ...model.agentOrder.map((agent) => [
              String(agent.n),
              agent.n
                ? `${"\u00a0\u00a0".repeat(Math.max(0, agent.depth - 1))}${
                    agent.role ?? "subagent"
                  }: ${agent.name || (agent.id ?? "").slice(0, 8)}`
                : "main",
            ]),
          ])
        : null
    }
    ${option("Messages", "text", [
      ["", "Short messages"],
      ["full", "Whole messages"],
      ["read", "Read as a conversation"],
      ["none", "Only prompts"],
    ])}
    <label><input type="checkbox" checked=${query.thinking === "1"}
      onChange=${(event) => setQuery({ thinking: event.target.checked ? "1" : null })} /> thinking</label>
    ${
      scale.hasGaps || query.idle
        ? html`<label><input type="checkbox" checked=${query.idle === "1"}
          onChange=${(event) => setQuery({ idle: event.target.checked ? "1" : null })} /> idle time</label>`
        : null
    }
    ${
      filtered
        ? html`<span class="faint" data-test="shown">
        ${plural(shown.filter(({ type }) => type === "call").length, "call")} shown</span>
        <button type="button" class="quiet" onClick=${() =>
          setQuery({ state: null, tool: null, agent: null, find: null, range: null })}>Clear</button>`
        : null
    }
    <span class="buttons">
      ${
        unsuccessful
          ? html`<button type="button" class="small" title="Previous unsuccessful call (p)"
            onClick=${() => step(-1)}>‹ unsuccessful</button>
          <button type="button" class="small" title="Next unsuccessful call (n)"
            onClick=${() => step(1)}>unsuccessful ›</button>`
          : null
      }
      ${
        model.to > model.from
          ? html`<button type="button" class="small" title="Zoom out (-)" aria-label="Zoom out"
            disabled=${!zoom} onClick=${() => zoomBy(2)}>−</button>
      <button type="button" class="small" title="Zoom in (+)" aria-label="Zoom in"
        onClick=${() => zoomBy(0.5)}>+</button>
      <button type="button" class="small" title="Whole session (0)" disabled=${!zoom}
        onClick=${() => setQuery({ zoom: null })}>fit</button>`
          : null
      }
    </span>
  </div>`;
}

function RangeBar({ model, range, query, setQuery }) {
  const calls = model.calls.filter((call) => overlaps(call, range));
  const requests = model.requests.filter(({ at }) => at >= range[0] && at <= range[1]);
  return html`<div class="range-bar" data-test="range"><${Facts} className="" items=${[
    html`<b>${clock(new Date(model.base + range[0]))} to ${clock(new Date(model.base + range[1]))}</b>`,
    duration(range[1] - range[0]),
    plural(calls.length, "call"),
    html`<span class="tone-bad">${number(calls.filter(isUnsuccessful).length)} unsuccessful</span>`,
    plural(requests.length, "request"),
    requests.length > 0 && `${short(requests.reduce((sum, { output_tokens }) => sum + output_tokens, 0))} tokens out`,
    ...sumParts(model, range).map(
      ([part, ms]) => html`<span class=${`legend part-${part}`}>${words(part)} ${duration(ms)}</span>`,
    ),
  ]} />
    <span class="buttons"><button type="button" class="small"
      onClick=${() => setQuery({ zoom: query.range })}>Zoom to it</button>
      <button type="button" class="small" onClick=${() => setQuery({ range: null })}>Clear</button></span></div>`;
}

// perf: while scrolling, only items that come into view are drawn, and while the session grows, only those that
// changed.
class Item extends Component {
  shouldComponentUpdate(next) {
    const { item, model } = this.props;
    return (
      ["full", "selected", "closed"].some((name) => next[name] !== this.props[name]) ||
      ["type", "row", "inside", "open", "ms", "date"].some((name) => next.item[name] !== item[name]) ||
      next.item.rows?.some((row, n) => row !== item.rows?.[n]) ||
      next.item.rows?.length !== item.rows?.length ||
      next.model.base !== model.base ||
      next.model.window !== model.window
    );
  }

  render(props) {
    const { item } = props;
    if (item.type === "mark") return html`<${Mark} ...${props} />`;
    if (item.type === "group") return html`<${CallGroup} ...${props} />`;
    if (item.type === "fold") return html`<${Fold} ...${props} />`;
    const kinds = { call: CallRow, message: MessageRow, agent: AgentRow };
    return html`<${kinds[item.row.type]} ...${props} row=${item.row} />`;
  }
}

const Time = ({ model, at }) =>
  html`<span class="time mono faint" title=${
    at === null ? "" : dateTime(new Date(model.base + at))
  }>${at === null ? "" : clock(new Date(model.base + at))}</span>`;
const Indent = ({ depth }) => html`<span class=${`indent depth-${Math.min(depth, 4)}`}></span>`;

const requestText = ({ context, output_tokens: output, cache_read_input_tokens: cached }) =>
  `request: ${number(context)} tokens of context, ${number(output)} out, ${number(cached)} from the cache`;

function CallRow({ row, item, session, model, selected, onSelect }) {
  const wrong = row.state !== "succeeded";
  const open = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    onSelect(row);
  };
  const share = row.request && model.window ? ` (${Math.round((100 * row.request.context) / model.window)}%)` : "";
  return html`<a class=${`item call${selected ? " current" : ""}${
    row.branch === "abandoned" ? " abandoned" : ""
  }${item.inside ? " inside" : ""}${wrong ? " wrong" : ""}`}
      href=${href("/session/:id", { id: session }, { call: row.id })} onClick=${open} aria-current=${
        selected ? "true" : undefined
      }>
    <${Time} model=${model} at=${row.at} /><${Indent} depth=${row.depth} />
      <${StateBadge} state=${row.state} text=${false} />
    <b class="tool">${row.tool}</b><span class="mono about">${row.target || (row.request_line === null ? row.id : "")}
      </span>
    ${
      wrong && (row.message || row.error_kind)
        ? html`<span class="why tone-${STATES[row.state]?.[1] ?? "muted"}">
        ${[kindName(row.error_kind ?? row.state), row.message].filter(Boolean).join(": ")}</span>`
        : null
    }
    ${
      row.together > 1
        ? html`<${Badge} title=${`${row.together} calls ran at the same time`}>∥ ${row.together}<//>`
        : null
    }
    ${FLAGS.map((flag) => (row[flag] ? html`<${Badge} key=${flag}>${flag}<//>` : null))}
    <span class="context faint" title=${row.request ? requestText(row.request) : ""}>
      ${row.request ? `${short(row.request.context)}${share}` : ""}</span>
    <span class="took">${duration(row.duration_ms)}</span></a>`;
}

function MessageRow({ row, session, model, full, selected, onSelect }) {
  const [open, setOpen] = useState(false);
  const [whole, setWhole] = useState(null);
  const shown = full || open || (selected && row.text.length > 60);
  const load = () =>
    get(`session/${encodeURIComponent(session)}/timeline`, { message: row.line, part: row.part, file: row.file }).then(
      ({ text }) => setWhole(text),
      (error) => setWhole(`${row.text}\n\n${error.message}`),
    );
  const classes = `item message voice-${row.voice}${row.opens ? " opens" : ""}${
    row.branch === "abandoned" ? " abandoned" : ""
  }${selected ? " current" : ""}`;
  if (!shown) {
    return html`<div class=${classes}><button type="button" class="bare" aria-expanded="false"
        onClick=${() => {
          setOpen(true);
          onSelect(row);
        }}>
      <${Time} model=${model} at=${row.at} /><${Indent} depth=${row.depth} />
        <span class="mark" title=${WORDS.voices[row.voice][1]}>${isResume(row) ? "↻" : WORDS.voices[row.voice][0]}
        </span>
      <span class="sr-only">${WORDS.voices[row.voice][1]}:</span><span class="line">
        ${isResume(row) ? "Resumed: the client ended and was started again" : firstLine(row.text, 400)}</span></button>
        </div>`;
  }
  return html`<div class=${`${classes} whole`}><div class="bare"><${Time} model=${model} at=${row.at} />
    <${Indent} depth=${row.depth} /><span class="mark" aria-hidden="true">${WORDS.voices[row.voice][0]}</span>
    <div class="body"><p class="voice">${WORDS.voices[row.voice][1]}
      ${
        full
          ? null
          : html` <button type="button" class="quiet small" aria-expanded="true"
          onClick=${() => {
            setOpen(false);
            if (selected) onSelect(null);
          }}>Fold</button>`
      }</p>
      <${Markdown} text=${whole ?? row.text} />${
        row.chars > row.text.length && whole === null
          ? html`<button type="button" class="small" onClick=${load}>Show all ${number(row.chars)} characters</button>`
          : null
      }</div></div></div>`;
}

function AgentRow({ row, model, closed, onToggle }) {
  return html`<div class="item agent"><button type="button" class="bare" aria-expanded=${!closed}
      onClick=${() => onToggle(row.n)}><${Time} model=${model} at=${row.at} /><${Indent} depth=${row.depth - 1} />
    <span class="mark" aria-hidden="true">${closed ? "▸" : "▾"}</span><b>${row.role ?? "subagent"}</b>
      ${row.name ? html`<span>${row.name}</span>` : null}<span class="faint">
      ${row.name ? "" : `${(row.id ?? "").slice(0, 12)} · `}${plural(row.calls, "call")}
      ${row.linked ? "" : " · started by an unknown call"}</span>
    <span class="took">${row.start !== null && row.end !== null ? duration(row.end - row.start) : ""}</span></button>
      </div>`;
}

function Fold({ item, model, onFold }) {
  const { row, rows, open } = item;
  const took = rows.reduce((sum, one) => sum + (one.duration_ms ?? 0), 0);
  return html`<div class="item fold"><button type="button" class="bare" aria-expanded=${open}
      onClick=${() => onFold(row)}><${Time} model=${model} at=${row.at} /><${Indent} depth=${row.depth} />
    <${StateBadge} state=${row.state} text=${false} />
    <b class="tool">${row.tool}</b><span class="mono about">${row.target}</span><${Badge}>×${rows.length}<//>
      <span class="faint">${open ? "fold" : "equal calls"}</span><span class="took">${duration(took)}</span></button>
      </div>`;
}

function CallGroup({ item, model, onFold }) {
  const { row, rows, open } = item;
  const tools = new Map();
  for (const { tool } of rows) tools.set(tool, (tools.get(tool) ?? 0) + 1);
  const wrong = rows.filter(isUnsuccessful).length;
  return html`<div class="item fold"><button type="button" class="bare" aria-expanded=${open}
      onClick=${() => onFold(row)}><${Time} model=${model} at=${row.at} /><${Indent} depth=${row.depth} />
    <span class="mark" aria-hidden="true">${open ? "▾" : "▸"}</span>
    <b>${plural(rows.length, "call")}</b><span class="faint about">
      ${[...tools].map(([tool, count]) => (count > 1 ? `${tool} ×${count}` : tool)).join(", ")}</span>
      ${wrong ? html`<span class="tone-bad">${number(wrong)} unsuccessful</span>` : null}
    <span class="took">${duration(rows.reduce((sum, one) => sum + (one.duration_ms ?? 0), 0))}</span></button></div>`;
}

function Mark({ item }) {
  const texts = {
    day: () => item.date,
    gap: () => `${duration(item.ms)} later`,
    rewind: () => "Left behind by a rewind",
    resume: () => `Continued as session ${shortId(item.session)}`,
  };
  return html`<div class=${`item mark-line ${item.mark}`}><span>${texts[item.mark]()}</span></div>`;
}
