// The answer of /api/session/ID/timeline as objects, and the items that the list of a session shows.

export const WRONG = new Set(["failed", "timed_out", "never_answered", "denied", "blocked_by_hook", "interrupted"]);
export const FLAGS = ["background", "deferred", "synthetic", "ambiguous", "truncated"];
const BRANCHES = ["active", "compacted", "abandoned"];
const GAP = 5 * 60_000;
const LEAST_EQUAL = 3;

// Put what changed since `data` into it, and return the indexes of the changed rows by table.
export function applyChanges(data, changes) {
  Object.assign(data, { version: changes.version, session: changes.session });
  if (!changes.order) return null;
  Object.assign(data, { base: changes.base, agents: changes.agents });
  for (const name of changes.names) data.names.push(name);
  const changed = {};
  for (const table of ["calls", "messages", "requests"]) {
    const { rows, ...columns } = changes[table];
    for (const [name, values] of Object.entries(columns)) rows.forEach((n, k) => { data[table][name][n] = values[k]; });
    changed[table] = new Set(rows);
  }
  const { keep, add, tail } = changes.order;
  data.order = [...data.order.slice(0, keep), ...add, ...data.order.slice(data.order.length - tail)];
  data.slices = [...data.slices.slice(0, 3 * changes.slices.keep), ...changes.slices.add];
  return changed;
}

// Columns whose values are all the same come as that value; make them arrays. The first column is always one.
export function expandColumns(data) {
  for (const table of [data.calls, data.messages, data.requests]) {
    const { length } = Object.values(table)[0];
    for (const [name, values] of Object.entries(table)) if (!Array.isArray(values)) table[name] = Array(length).fill(values);
  }
  return data;
}

// { rows, calls, messages, agents, requests, phases, slices, base, from, to }; times are milliseconds after base.
// With the model of an earlier state and the indexes of the changed rows, the objects of all other rows are used again.
export function buildModel(data, old = null, changed = null) {
  const { names, order, base } = data;
  const agents = data.agents.map((agent, n) => ({ ...agent, kind: "agent", n, key: `a${n}`, agent: n, at: agent.start }));
  const build = (name, count, make) => {
    const list = Array(count);
    for (let n = 0; n < count; n += 1) list[n] = (old && !changed[name].has(n) && old.tables[name][n]) || make(n);
    return list;
  };
  const r = data.requests;
  const requests = build("requests", r.id.length, (n) => ({
    n, id: r.id[n], at: r.at[n], agent: r.agent[n], model: names[r.model[n]], input: r.input[n], output: r.output[n],
    read: r.cache_read[n], write: r.cache_write[n], context: r.context[n],
  }));
  const c = data.calls;
  const calls = build("calls", c.id.length, (n) => ({
    kind: "call", n, key: `c${n}`, id: c.id[n], tool: names[c.tool[n]] ?? "orphan result", state: names[c.state[n]], agent: c.agent[n], at: c.start[n] ?? c.at[n],
    requested: c.at[n], end: c.end[n], took: c.took[n], lane: c.lane[n], target: c.target[n], error: names[c.error[n]], message: c.message[n],
    batch: c.batch[n], branch: BRANCHES[c.branch[n]], flags: c.flags[n], exit: c.exit[n], file: names[c.file[n]], requestLine: c.request_line[n],
    resultLine: c.result_line[n], until: c.until[n], hooks: c.hooks[n], session: names[c.session[n]], phases: c.phases[n],
    index: -1, depth: 0, together: 0, request: null,
  }));
  const m = data.messages;
  const messages = build("messages", m.text.length, (n) => ({
    kind: "message", n, key: `m${n}`, text: m.text[n], agent: m.agent[n], voice: names[m.voice[n]], at: m.at[n], branch: BRANCHES[m.branch[n]],
    opens: Boolean(m.opens[n]), file: names[m.file[n]], line: m.line[n], part: m.part[n], chars: m.chars[n], index: -1, depth: 0,
  }));
  const isSorted = requests.every((request, n) => !n || requests[n - 1].at <= request.at);
  const inTime = isSorted ? requests : requests.toSorted((one, other) => one.at - other.at || one.agent - other.agent);
  const [requestOf, together] = [requestsOfCalls(inTime, calls, order), countTogether(calls)];
  // Fields that depend on other rows. A row that is shown already is replaced if one of them changes.
  for (let n = 0; n < calls.length; n += 1) {
    const [call, { depth }] = [calls[n], agents[calls[n].agent]];
    if (call.request === requestOf[n] && call.together === together[n] && call.depth === depth) continue;
    const target = call.index < 0 ? call : (calls[n] = { ...call });
    target.request = requestOf[n];
    target.together = together[n];
    target.depth = depth;
  }
  for (let n = 0; n < messages.length; n += 1) {
    const { depth } = agents[messages[n].agent];
    if (messages[n].depth !== depth) messages[n] = { ...messages[n], depth };
  }
  const lists = [calls, messages, agents];
  const rows = order.map((code, index) => {
    const row = lists[code % 3][Math.floor(code / 3)];
    row.index = index;
    return row;
  });
  agents.forEach((agent) => { agent.above = agent.parent === null ? (agent.n ? 0 : null) : calls[agent.parent].agent; });
  const agentOrder = [agents[0], ...rows.filter(({ kind }) => kind === "agent")]; // as listed: parents first
  let [from, to] = [Infinity, -Infinity];
  const extend = (time) => { if (typeof time === "number") { if (time < from) from = time; if (time > to) to = time; } };
  for (const row of rows) {
    extend(row.at);
    extend(row.end);
    extend(row.until);
  }
  if (from > to) [from, to] = [0, 0];
  const phases = [];
  for (const call of calls) if (call.phases) for (const [start, end, phase] of call.phases) phases.push({ call, start, end, phase });
  return {
    session: data.session, meanings: data.meanings, base, rows, calls, messages, agents, agentOrder, requests: inTime, tables: { calls, messages, requests }, from, to,
    slices: decodeSlices(data),
    phases,
    peak: requests.reduce((most, { context }) => Math.max(most, context), 0),
    window: contextWindow(data.session.dialect, requests),
  };
}

// What the time was used for: starts, ends, and parts as indexes of names. perf: 100,000 objects take 50 ms
function decodeSlices({ names, slices }) {
  const count = slices.length / 3;
  const [starts, ends, parts] = [new Float64Array(count), new Float64Array(count), new Uint32Array(count)];
  for (let n = 0, at = 0; n < count; n += 1) {
    starts[n] = at += slices[3 * n];
    ends[n] = at += slices[3 * n + 1];
    parts[n] = slices[3 * n + 2];
  }
  return { count, starts, ends, parts, names };
}

// The request of each call, on the first call of each request only.
function requestsOfCalls(requests, calls, order) {
  const found = Array(calls.length).fill(null);
  const byId = new Map(requests.map((request) => [request.id, request]));
  let last = null;
  for (const code of order) {
    if (code % 3) continue;
    const call = calls[code / 3];
    const request = call.batch === null ? null : byId.get(call.batch) ?? null;
    if (request !== last) found[call.n] = request;
    last = request ?? last;
  }
  // Clients that do not name the request of a call: a request belongs to the first call after the request before it.
  const named = new Set(calls.map(({ batch }) => batch));
  const byAgent = new Map();
  for (const request of requests) {
    if (named.has(request.id)) continue;
    if (!byAgent.has(request.agent)) byAgent.set(request.agent, { next: 0, calls: calls.filter(({ agent, requested }) => agent === request.agent && requested !== null).sort((a, b) => a.requested - b.requested) });
    const line = byAgent.get(request.agent);
    if (line.next < line.calls.length && line.calls[line.next].requested <= request.at) found[line.calls[line.next].n] ??= request;
    while (line.next < line.calls.length && line.calls[line.next].requested <= request.at) line.next += 1;
  }
  return found;
}

// How many calls of the same agent ran at the same time as each call, itself included.
function countTogether(calls) {
  const groups = Array(calls.length).fill(null);
  const last = new Map();
  for (const call of calls.filter(({ at, end }) => at !== null && end !== null).sort((one, other) => one.at - other.at)) {
    let group = last.get(call.agent);
    if (!group || call.at >= group.end) last.set(call.agent, group = { end: call.end, count: 0 });
    group.end = Math.max(group.end, call.end);
    group.count += 1;
    groups[call.n] = group;
  }
  return groups.map((group) => group?.count ?? 0);
}

// The tokens that fit: 200,000 for Claude models unless a request had more; unknown (null) for others.
function contextWindow(dialect, requests) {
  if (dialect !== "claude") return null;
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
    matches[call.n] = (!states.size || states.has(call.state)) && (!tool || call.tool === tool) && (!wanted || searchText(call).includes(wanted)) ? 1 : 0;
  }
  return matches;
}

// perf: made once per row, so that typing does not join and lower the text of 50,000 calls again
const searchText = (row) => (row.searchText ??= (row.kind === "call" ? `${row.tool} ${row.target} ${row.message ?? ""} ${row.id}` : row.text).toLowerCase());

// Return a function that tells whether a row passes the filters. `range` is [start, end] or null; `matches` is of matchCalls.
export function makeFilter({ matches, states, tool, agent, find, range, text, thinking, hidden }) {
  const wanted = find.toLowerCase();
  return (row) => {
    if (row.kind === "agent") {
      return matches === null && (agent === null || agent === row.n) && (row.above === null || !hidden.has(row.above)) && (!range || overlaps(row, range));
    }
    if (row.kind === "call" && matches !== null && !matches[row.n]) return false;
    if (hidden.has(row.agent) || (agent !== null && row.agent !== agent)) return false;
    if (range && !overlaps(row, range)) return false;
    if (row.kind === "call") return true;
    if (states.size || tool || (text === "none" && !row.opens)) return false;
    if (wanted) return searchText(row).includes(wanted);
    return row.voice !== "thinking" || thinking;
  };
}

export function overlaps(row, [start, end]) {
  return row.at !== null && row.at <= end && (row.end ?? row.at) >= start;
}

// Return the items of the list: rows, folds of equal rows, and marks between them.
export function buildItems(model, passes, { unfold, opened }) {
  const items = [];
  let [session, abandoned, latest] = [null, false, null];
  const shown = model.rows.filter(passes);
  for (let n = 0; n < shown.length; n += 1) {
    const row = shown[n];
    if (row.agent === 0 && row.kind !== "agent") {
      if (latest !== null && row.at !== null && row.at - latest > GAP) items.push({ type: "mark", key: `g${row.key}`, row, mark: "gap", ms: row.at - latest });
      if (row.branch === "abandoned" && !abandoned) items.push({ type: "mark", key: `b${row.key}`, row, mark: "rewind" });
      abandoned = row.branch === "abandoned";
      if (row.kind === "call" && row.session) {
        if (session !== null && row.session !== session) items.push({ type: "mark", key: `r${row.key}`, row, mark: "resume", session: row.session });
        session = row.session;
      }
      if (row.at !== null) latest = Math.max(latest ?? row.at, row.end ?? row.at);
    }
    let count = 1;
    if (row.kind === "call" && !unfold) while (n + count < shown.length && isEqual(row, shown[n + count])) count += 1;
    if (count >= LEAST_EQUAL) {
      const rows = shown.slice(n, n + count);
      const open = opened.has(row.key);
      items.push({ type: "fold", key: `f${row.key}`, row, rows, open });
      if (open) for (const one of rows) items.push({ type: "row", key: one.key, row: one, inside: true });
      for (const one of rows) if (one.agent === 0 && one.at !== null) latest = Math.max(latest ?? one.at, one.end ?? one.at);
      n += count - 1;
    } else {
      items.push({ type: "row", key: row.key, row });
    }
  }
  return { items, shown };
}

const isEqual = (one, other) => other.kind === "call" && one.tool === other.tool && one.target === other.target && one.state === other.state
  && one.agent === other.agent && one.branch === other.branch;

// Times at which the conversation was compacted or resumed, for the waterfall.
export function marksOf(model) {
  return model.messages.filter(({ voice, agent, text }) => agent === 0 && (voice === "summary" || isResume({ voice, text }))).map((message) => ({
    at: message.at, mark: message.voice === "summary" ? "compacted" : "resumed",
  })).filter(({ at }) => at !== null);
}

export const isResume = ({ voice, text }) => voice === "injected" && text.startsWith("No response requested");

// The row at a line of the main file, or of the subagent `of`, or of any file.
export function rowAtLine(model, line, of) {
  const agent = of ? model.agents.findIndex(({ id }) => id === of) : 0;
  const matches = (row) => (row.kind === "call" ? row.requestLine === line || row.resultLine === line : row.kind === "message" && row.line === line);
  return model.rows.find((row) => row.agent === agent && matches(row)) ?? model.rows.find(matches) ?? null;
}

// A scale from times to positions 0 to 1 on which long idle times are narrow.
export function makeScale(model, fold) {
  const { from, to } = model;
  const busy = model.calls.filter(({ at, end }) => at !== null && end !== null).map(({ at, end }) => [at, end]).sort((a, b) => a[0] - b[0]);
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
      if (test(pieces[middle])) low = middle; else high = middle - 1;
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
    if (busy[middle][0] < start) low = middle + 1; else high = middle;
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
