// The answer of /api/session/ID/timeline as objects, and the items that the list of a session shows. The fields of a
// call have the names of `toolspan calls --json`; `thread` is the number of the agent that made it.
import { day, firstLine } from "./format.js";
import { embeddedText } from "../embedded.js";
import { WORDS } from "./words.js";

export const FLAGS = ["background", "deferred", "synthetic", "ambiguous", "truncated"];
const GAP = 5 * 60_000;
const LEAST_EQUAL = 3;
const MAX_LANES = 16;
const TABLES = ["calls", "messages", "requests"];

// Put what changed since `data` into it, and return the indexes of the changed rows by table.
export function applyChanges(data, changes) {
  Object.assign(data, { version: changes.version, session: changes.session });
  if (!changes.order) return null;
  Object.assign(data, { base: changes.base, agents: changes.agents });
  const changed = {};
  for (const table of TABLES) {
    const { rows, ...columns } = changes[table];
    for (const [name, values] of Object.entries(columns))
      rows.forEach((n, k) => {
        data[table][name][n] = values[k];
      });
    changed[table] = new Set(rows);
  }
  const { keep, add, tail } = changes.order;
  data.order = [...data.order.slice(0, keep), ...add, ...data.order.slice(data.order.length - tail)];
  data.slices = [...data.slices.slice(0, 3 * changes.slices.keep), ...changes.slices.add];
  return changed;
}

// Columns with many equal values have a shorter form; make them arrays. The first column is always one.
export function expandColumns(data) {
  for (const table of TABLES) {
    const { length } = Object.values(data[table])[0];
    for (const [name, values] of Object.entries(data[table])) {
      if (values?.index) data[table][name] = values.index.map((n) => values.values[n]);
      else if (!Array.isArray(values)) data[table][name] = Array(length).fill(values);
    }
  }
  return data;
}

// { rows, calls, messages, agents, requests, phases, slices, base, from, to }; times are milliseconds after base.
// With the model of an earlier state and the indexes of the changed rows, the objects of all other rows are used again.
export function buildModel(data, old = null, changed = null) {
  const { order, base } = data;
  const agents = data.agents.map((agent, n) => ({
    ...agent,
    type: "agent",
    n,
    key: `a${n}`,
    thread: n,
    at: agent.start,
    lanes: 1,
  }));
  const build = (table, make) => {
    const columns = Object.entries(data[table]);
    return columns[0][1].map((_, n) => {
      if (old && !changed[table].has(n) && old.tables[table][n]) return old.tables[table][n];
      const row = make(n);
      for (const [name, values] of columns) row[name] = values[n];
      return row;
    });
  };
  const requests = build("requests", (n) => ({ n }));
  const calls = build("calls", (n) => ({
    type: "call",
    n,
    key: `c${n}`,
    at: null,
    lane: null,
    index: -1,
    depth: 0,
    together: 0,
    request: null,
  }));
  const messages = build("messages", (n) => ({ type: "message", n, key: `m${n}`, index: -1, depth: 0 }));
  for (const call of calls) {
    call.at = call.start;
    call.tool ??= "orphan result";
  }
  const isSorted = requests.every((request, n) => !n || requests[n - 1].at <= request.at);
  const inTime = isSorted
    ? requests
    : requests.toSorted((one, other) => one.at - other.at || one.thread - other.thread);
  const [requestOf, together] = [requestsOfCalls(inTime, calls, order), countTogether(calls)];
  // Fields that depend on other rows. A row that is shown already is replaced if one of them changes.
  for (let n = 0; n < calls.length; n += 1) {
    const [call, { depth }] = [calls[n], agents[calls[n].thread]];
    if (call.request === requestOf[n] && call.together === together[n] && call.depth === depth) continue;
    const target = call.index < 0 ? call : (calls[n] = { ...call });
    target.request = requestOf[n];
    target.together = together[n];
    target.depth = depth;
  }
  for (let n = 0; n < messages.length; n += 1) {
    const { depth } = agents[messages[n].thread];
    if (messages[n].depth !== depth) messages[n] = { ...messages[n], depth };
  }
  const lists = [calls, messages, agents];
  const rows = order.map((code, index) => {
    const row = lists[code % 3][Math.floor(code / 3)];
    row.index = index;
    return row;
  });
  assignLanes(rows, agents);
  agents.forEach((agent) => {
    agent.above = agent.parent === null ? (agent.n ? 0 : null) : calls[agent.parent].thread;
    agent.name = agent.parent === null ? "" : firstLine(calls[agent.parent].target, 80);
  });
  const agentOrder = [agents[0], ...rows.filter(({ type }) => type === "agent")]; // as listed: parents first
  let [from, to] = [Infinity, -Infinity];
  const extend = (time) => {
    if (typeof time === "number") {
      if (time < from) from = time;
      if (time > to) to = time;
    }
  };
  for (const row of rows) {
    extend(row.at);
    extend(row.end);
    extend(row.until);
  }
  if (from > to) [from, to] = [0, 0];
  const phases = [];
  for (const call of calls)
    if (call.phases) for (const [start, end, phase] of call.phases) phases.push({ call, start, end, phase });
  return {
    session: data.session,
    base,
    rows,
    calls,
    messages,
    agents,
    agentOrder,
    requests: inTime,
    tables: { calls, messages, requests },
    from,
    to,
    slices: decodeSlices(data),
    phases,
    peak: requests.reduce((most, { context }) => Math.max(most, context), 0),
    window: contextWindow(data.session.client, requests),
  };
}

// Draw the calls of an agent that overlap in different lanes. One without a duration takes 1 ms.
function assignLanes(rows, agents) {
  const free = agents.map(() => []);
  for (const call of rows) {
    if (call.type !== "call" || call.at === null) continue;
    const lanes = free[call.thread];
    const lane = lanes.findIndex((from) => from <= call.at);
    const n = lane < 0 ? lanes.length : lane;
    lanes[n] = Math.max(call.end ?? call.at, call.at + 1);
    call.lane = Math.min(n, MAX_LANES - 1);
  }
  agents.forEach((agent) => {
    agent.lanes = Math.min(Math.max(free[agent.n].length, 1), MAX_LANES);
  });
}

// What the time was used for: starts, ends, and parts as indexes of their names. perf: 100,000 objects take 50 ms
function decodeSlices({ slices }) {
  const count = slices.length / 3;
  const [starts, ends, parts] = [new Float64Array(count), new Float64Array(count), new Uint32Array(count)];
  for (let n = 0, at = 0; n < count; n += 1) {
    starts[n] = at += slices[3 * n];
    ends[n] = at += slices[3 * n + 1];
    parts[n] = slices[3 * n + 2];
  }
  return { count, starts, ends, parts, names: WORDS.parts };
}

// The request of each call, on the first call of each request only.
function requestsOfCalls(requests, calls, order) {
  const found = Array(calls.length).fill(null);
  const byId = new Map(requests.map((request) => [request.batch, request]));
  let last = null;
  for (const code of order) {
    if (code % 3) continue;
    const call = calls[code / 3];
    const request = call.batch === null ? null : (byId.get(call.batch) ?? null);
    if (request !== last) found[call.n] = request;
    last = request ?? last;
  }
  // Clients that do not name the request of a call: a request belongs to the first call after the request before it.
  const named = new Set(calls.map(({ batch }) => batch));
  const byAgent = new Map();
  for (const request of requests) {
    if (named.has(request.batch)) continue;
    if (!byAgent.has(request.thread))
      byAgent.set(request.thread, {
        next: 0,
        calls: calls.filter(({ thread, at }) => thread === request.thread && at !== null).sort((a, b) => a.at - b.at),
      });
    const line = byAgent.get(request.thread);
    if (line.next < line.calls.length && line.calls[line.next].at <= request.at)
      found[line.calls[line.next].n] ??= request;
    while (line.next < line.calls.length && line.calls[line.next].at <= request.at) line.next += 1;
  }
  return found;
}

// How many calls of the same agent ran at the same time as each call, itself included.
function countTogether(calls) {
  const groups = Array(calls.length).fill(null);
  const last = new Map();
  for (const call of calls
    .filter(({ at, end }) => at !== null && end !== null)
    .sort((one, other) => one.at - other.at)) {
    let group = last.get(call.thread);
    if (!group || call.at >= group.end) last.set(call.thread, (group = { end: call.end, count: 0 }));
    group.end = Math.max(group.end, call.end);
    group.count += 1;
    groups[call.n] = group;
  }
  return groups.map((group) => group?.count ?? 0);
}

// The tokens that fit: 200,000 for Claude models unless a request had more; unknown (null) for others.
function contextWindow(client, requests) {
  if (client !== "claude") return null;
  const most = requests.reduce((peak, { context }) => Math.max(peak, context), 0);
  return [200_000, 1_000_000].find((tokens) => most <= tokens) ?? null;
}

// The agents that are hidden because an agent above them is closed.
export function hiddenAgents(agents, closed) {
  const hidden = new Set(closed);
  for (const agent of agents) if (agent.above !== null && hidden.has(agent.above)) hidden.add(agent.n);
  return hidden;
}

// Return for each call whether it passes the filters on calls, or null if there are none.
export function matchCalls(model, { states, tool, find }) {
  const wanted = find.toLowerCase();
  if (!states.size && !tool && !wanted) return null;
  const matches = new Uint8Array(model.calls.length); // perf: Uint8Array.from takes ten times as long
  for (const call of model.calls) {
    matches[call.n] =
      (!states.size || states.has(call.state)) &&
      (!tool || call.tool === tool) &&
      (!wanted || searchText(call).includes(wanted))
        ? 1
        : 0;
  }
  return matches;
}

// perf: made once per row, so that typing does not join and lower the text of 50,000 calls again
const searchText = (row) =>
  (row.searchText ??= (
    row.type === "call" ? `${row.tool} ${row.target} ${row.message ?? ""} ${row.id}\n${embeddedText(row)}` : row.text
  ).toLowerCase());

// Return a function that tells whether a row passes the filters. `range` is [start, end] or null; `matches` is of
// matchCalls.
export function makeFilter({ matches, states, tool, agent, find, range, text, thinking, hidden }) {
  const wanted = find.toLowerCase();
  return (row) => {
    if (row.type === "agent") {
      return (
        matches === null &&
        (agent === null || agent === row.n) &&
        (row.above === null || !hidden.has(row.above)) &&
        (!range || overlaps(row, range))
      );
    }
    if (row.type === "call" && matches !== null && !matches[row.n]) return false;
    if (hidden.has(row.thread) || (agent !== null && row.thread !== agent)) return false;
    if (range && !overlaps(row, range)) return false;
    if (row.type === "call") return true;
    if (states.size || tool || (text === "none" && !row.opens)) return false;
    if (wanted) return searchText(row).includes(wanted);
    return row.voice !== "thinking" || thinking;
  };
}

export function overlaps(row, [start, end]) {
  return row.at !== null && row.at <= end && (row.end ?? row.at) >= start;
}

// Return the items of the list: rows, folds of equal rows, and marks between them.
export function buildItems(model, passes, { unfold, opened, reading = false }) {
  const items = [];
  let [session, abandoned, latest] = [null, false, null];
  const shown = model.rows.filter(passes);
  for (let n = 0; n < shown.length; n += 1) {
    const row = shown[n];
    if (row.thread === 0 && row.type !== "agent") {
      if (latest !== null && row.at !== null && row.at - latest > GAP)
        items.push({ type: "mark", key: `g${row.key}`, row, mark: "gap", ms: row.at - latest });
      if (row.branch === "abandoned" && !abandoned)
        items.push({ type: "mark", key: `b${row.key}`, row, mark: "rewind" });
      abandoned = row.branch === "abandoned";
      if (row.type === "call" && row.session) {
        if (session !== null && row.session !== session)
          items.push({ type: "mark", key: `r${row.key}`, row, mark: "resume", session: row.session });
        session = row.session;
      }
      if (row.at !== null) latest = Math.max(latest ?? row.at, row.end ?? row.at);
    }
    let count = 1;
    if (row.type === "call" && !unfold) while (n + count < shown.length && isEqual(row, shown[n + count])) count += 1;
    if (count >= LEAST_EQUAL) {
      const rows = shown.slice(n, n + count);
      const open = opened.has(row.key);
      items.push({ type: "fold", key: `f${row.key}`, row, rows, open });
      if (open) for (const one of rows) items.push({ type: "row", key: one.key, row: one, inside: true });
      for (const one of rows)
        if (one.thread === 0 && one.at !== null) latest = Math.max(latest ?? one.at, one.end ?? one.at);
      n += count - 1;
    } else {
      items.push({ type: "row", key: row.key, row });
    }
  }
  return { items: markDays(reading ? groupCalls(items, opened) : items, model.base), shown };
}

// For reading: the calls between two messages as one item, until it is opened.
function groupCalls(items, opened) {
  const grouped = [];
  let group = null;
  for (const item of items) {
    const rows =
      item.type === "fold"
        ? item.rows
        : item.type === "row" && item.row.type === "call" && !item.inside
          ? [item.row]
          : null;
    if (item.inside) continue; // its fold has been added
    if (rows && group) group.rows.push(...rows);
    else if (rows) grouped.push((group = { type: "group", key: `c${item.key}`, row: rows[0], rows: [...rows] }));
    else {
      group = null;
      grouped.push(item);
    }
  }
  return grouped.flatMap((item) => {
    if (item.type !== "group") return [item];
    const open = opened.has(item.row.key);
    return [
      { ...item, open },
      ...(open ? item.rows.map((row) => ({ type: "row", key: row.key, row, inside: true })) : []),
    ];
  });
}

// A mark wherever another day begins. Sessions of one day have none.
function markDays(items, base) {
  const marked = [];
  let latest = null;
  for (const item of items) {
    const date = item.row.at === null ? null : day(new Date(base + item.row.at));
    if (date !== null && latest !== null && date > latest)
      marked.push({ type: "mark", key: `d${item.key}`, row: item.row, mark: "day", date });
    if (date !== null && (latest === null || date > latest)) latest = date;
    marked.push(item);
  }
  return marked;
}

const isEqual = (one, other) =>
  other.type === "call" &&
  one.tool === other.tool &&
  one.target === other.target &&
  one.state === other.state &&
  one.thread === other.thread &&
  one.branch === other.branch;

// Times at which the conversation was compacted or resumed, for the waterfall.
export function marksOf(model) {
  return model.messages
    .filter(({ voice, thread, text }) => thread === 0 && (voice === "summary" || isResume({ voice, text })))
    .map((message) => ({ at: message.at, mark: message.voice === "summary" ? "compacted" : "resumed" }))
    .filter(({ at }) => at !== null);
}

export const isResume = ({ voice, text }) => voice === "injected" && text.startsWith("No response requested");

// The row at a line of the main file, or of the subagent `of`, or of any file.
export function rowAtLine(model, line, of) {
  const thread = of ? model.agents.findIndex(({ id }) => id === of) : 0;
  const matches = (row) =>
    row.type === "call"
      ? row.request_line === line || row.result_line === line
      : row.type === "message" && row.line === line;
  return model.rows.find((row) => row.thread === thread && matches(row)) ?? model.rows.find(matches) ?? null;
}

// A scale from times to positions 0 to 1 on which long idle times are narrow.
export function makeScale(model, fold) {
  const { from, to } = model;
  const busy = model.calls
    .filter(({ at, end }) => at !== null && end !== null)
    .map(({ at, end }) => [at, end])
    .sort((a, b) => a[0] - b[0]);
  const idle = [];
  const { count, starts, ends, parts, names } = model.slices;
  const isIdle = names.map((name) => name === "idle" || name === "nothing_recorded");
  for (let n = 0; n < count; n += 1) if (isIdle[parts[n]]) idle.push(...uncovered(starts[n], ends[n], busy));
  const work = Math.max(1, to - from - idle.reduce((sum, [a, b]) => sum + b - a, 0));
  const gaps = fold ? idle.filter(([a, b]) => b - a > Math.max(5000, work * 0.03)) : [];
  const share = gaps.length ? Math.min(0.02, 0.3 / gaps.length) : 0;
  const rest = Math.max(1, to - from - gaps.reduce((sum, [a, b]) => sum + b - a, 0));
  const rate = (1 - share * gaps.length) / rest;
  const pieces = [];
  let [at, x] = [from, 0];
  const push = (end, width, gap) => {
    pieces.push({ start: at, end, x, width, gap });
    at = end;
    x += width;
  };
  for (const [a, b] of gaps) {
    if (a > at) push(a, (a - at) * rate, false);
    push(b, share, true);
  }
  if (to > at || !pieces.length) push(Math.max(to, at + 1), Math.max(1e-9, 1 - x), false);
  const find = (test) => {
    let [low, high] = [0, pieces.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (test(pieces[middle])) low = middle;
      else high = middle - 1;
    }
    return pieces[low];
  };
  const clamp = (value) => Math.min(1, Math.max(0, value));
  return {
    pieces,
    hasGaps: idle.some(([a, b]) => b - a > Math.max(5000, work * 0.03)),
    place(ms) {
      const piece = find(({ start }) => start <= ms);
      return piece.x + piece.width * clamp((ms - piece.start) / Math.max(1, piece.end - piece.start));
    },
    time(share) {
      const piece = find(({ x: left }) => left <= share);
      return piece.start + (piece.end - piece.start) * clamp((share - piece.x) / piece.width);
    },
  };
}

// The parts of an interval in which no call runs.
function uncovered(start, end, busy) {
  const found = [];
  let [low, high] = [0, busy.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (busy[middle][0] < start) low = middle + 1;
    else high = middle;
  }
  let n = low;
  while (n > 0 && low - n < 64) n -= 1; // calls that began before may still run
  let at = start;
  for (; n < busy.length && busy[n][0] < end; n += 1) {
    if (busy[n][1] <= at) continue;
    if (busy[n][0] > at) found.push([at, busy[n][0]]);
    at = Math.max(at, busy[n][1]);
  }
  if (at < end) found.push([at, end]);
  return found;
}
