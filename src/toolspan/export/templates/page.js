"use strict";
/* Renders the session embedded in #facts and #bodies. Texts are only inserted through textContent.
   Bodies are decoded on first use, and rows are created when they come into view. */
(() => {
  const $ = (id) => document.getElementById(id);
  const facts = JSON.parse($("facts").textContent);
  const { session, rows, agents, slices } = facts;
  const GLYPHS = {
    succeeded: "✓", failed: "✗", denied: "⊘", blocked_by_hook: "⊘", cancelled: "○", interrupted: "■",
    timed_out: "◷", never_answered: "?", orphan_result: "¿", requested: "…", awaiting_permission: "…",
    running: "▸",
  };
  const VOICES = {
    prompt: "❯", command: "❯", text: "", thinking: "∴", injected: "+", summary: "≡", notification: "◆",
    interrupt: "■", error: "!", system: "─",
  };
  const SPEAKERS = {
    prompt: "prompt", command: "command", text: "model", thinking: "thinking", injected: "client, to the model",
    summary: "summary", notification: "notification", interrupt: "interrupted", error: "error", system: "client",
  };
  const CHUNK = 80;
  const QUIET = 300000;

  let bodies = null;
  const text = (number) => {
    if (number === null || number === undefined) return "";
    bodies ??= JSON.parse($("bodies").textContent).texts;
    return bodies[number];
  };

  /* Formatting */
  const make = (tag, className, content) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (content !== undefined && content !== null) element.textContent = content;
    return element;
  };
  const number = (n) => n.toLocaleString("en-US");
  const plural = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
  const two = (n) => String(n).padStart(2, "0");
  const duration = (ms) => {
    if (ms === null || ms === undefined) return "";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
    const seconds = Math.round(ms / 1000);
    if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
    const minutes = Math.floor(seconds / 60);
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? `${hours}h ${two(minutes % 60)}m` : `${Math.floor(hours / 24)}d ${hours % 24}h`;
  };
  const clock = (ms) => (ms === null ? "" : new Date(ms).toISOString().slice(11, 19));
  const day = (ms) => new Date(ms).toISOString().slice(0, 10);

  /* Colours: system, light or dark */
  const THEMES = [["auto", "◐", "as the system"], ["light", "☀", "light"], ["dark", "☾", "dark"]];
  let theme = 0;
  try { theme = Math.max(0, THEMES.findIndex(([name]) => name === localStorage.getItem("toolspan-theme"))); } catch { /* no storage here */ }
  const paint = () => {
    const [name, sign, words] = THEMES[theme];
    document.documentElement.dataset.theme = name;
    $("theme").textContent = sign;
    $("theme").setAttribute("aria-label", `Colours: ${words}`);
    $("theme").title = `Colours: ${words}`;
  };
  $("theme").addEventListener("click", () => {
    theme = (theme + 1) % THEMES.length;
    try { localStorage.setItem("toolspan-theme", THEMES[theme][0]); } catch { /* no storage here */ }
    paint();
  });
  paint();

  /* Head */
  const calls = rows.filter((row) => row.k === "call");
  calls.forEach((row, n) => { row.n = n; });
  rows.forEach((row, n) => { row.index = n; });
  const tell = (where, words, className) => { if (words) where.append(make("span", className, words)); };
  tell($("about"), session.id, "mono");
  tell($("about"), session.cwd + (session.branch ? ` · ${session.branch}` : ""));
  tell($("about"), [session.client, session.models].filter(Boolean).join(" · "));
  if (session.start !== null) tell($("about"), `${day(session.start)} ${clock(session.start)} UTC`);
  const notes = [];
  if (facts.leftOut) notes.push(`${plural(facts.leftOut, "further row")} did not fit on this page.`);
  if (session.findings) notes.push(`${plural(session.findings, "problem")} found while reading: run toolspan doctor.`);
  $("warning").textContent = notes.join(" ");
  $("warning").hidden = !notes.length;

  const sums = { model: 0, tools: 0, permission: 0, hooks: 0, idle: 0 };
  for (const [start, end, part] of slices) sums[part] += end - start;
  const wall = Object.values(sums).reduce((a, b) => a + b, 0);
  $("wall").textContent = duration(wall);
  for (const [part, ms] of Object.entries(sums)) {
    if (!ms) continue;
    const piece = make("i", `part-${part}`);
    piece.style.flex = String(ms / wall);
    $("split").append(piece);
    const item = make("li");
    item.append(make("i", `part-${part}`), `${part} `, make("b", "", duration(ms)), ` ${Math.round(100 * ms / wall)}%`);
    $("split-legend").append(item);
  }
  $("split").setAttribute("aria-label", Object.entries(sums).map(([part, ms]) => `${part} ${duration(ms)}`).join(", "));
  const subagents = agents.length - 1;
  $("calls").textContent = number(calls.length) + (subagents > 0 ? ` · ${plural(subagents, "subagent")}` : "");
  const spent = session.tokens;
  $("tokens").textContent = `tokens: ${number(spent.input_tokens)} in · ${number(spent.output_tokens)} out · ` +
    `${number(spent.cache_read_input_tokens)} from cache · ${number(spent.cache_creation_input_tokens)} to cache`;

  /* Filters */
  const wanted = { states: new Set(), tool: "", agent: "", query: "", words: true, thinking: false };
  const counted = (key) => calls.reduce((found, row) => found.set(row[key], (found.get(row[key]) || 0) + 1), new Map());
  for (const [state, n] of [...counted("state")].sort((a, b) => b[1] - a[1])) {
    const chip = make("button", `chip s-${state}`, `${number(n)} ${state.replaceAll("_", " ")}`);
    chip.type = "button";
    chip.dataset.state = state;
    chip.title = facts.meaning[state];
    chip.setAttribute("aria-pressed", "false");
    chip.addEventListener("click", () => {
      const on = wanted.states.has(state);
      if (on) wanted.states.delete(state); else wanted.states.add(state);
      chip.setAttribute("aria-pressed", String(!on));
      refresh();
    });
    $("states").append(chip);
  }
  const choices = (select, pairs) => {
    for (const [value, words] of pairs) {
      const option = make("option", "", words);
      option.value = value;
      select.append(option);
    }
  };
  choices($("tool"), [...counted("tool")].sort().map(([tool, n]) => [tool, `${tool} (${n})`]));
  const agentName = (n) => (n === 0 ? "main" : `${agents[n].role} ${agents[n].name.slice(0, 10)}`);
  choices($("agent"), agents.map((_, n) => [String(n), agentName(n)]));
  $("agent").parentElement.hidden = agents.length < 2;
  $("tool").addEventListener("change", () => { wanted.tool = $("tool").value; refresh(); });
  $("agent").addEventListener("change", () => { wanted.agent = $("agent").value; refresh(); });
  $("words").addEventListener("change", () => { wanted.words = $("words").checked; refresh(); });
  $("thinking").addEventListener("change", () => { wanted.thinking = $("thinking").checked; refresh(); });
  let typing = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { wanted.query = $("search").value.trim().toLowerCase(); refresh(); }, 120);
  });
  const clear = () => {
    Object.assign(wanted, { tool: "", agent: "", query: "", words: true });
    wanted.states.clear();
    $("search").value = $("tool").value = $("agent").value = "";
    $("words").checked = true;
    for (const chip of $("states").children) chip.setAttribute("aria-pressed", "false");
    refresh();
  };
  $("clear").addEventListener("click", clear);

  const hay = [];
  const haystack = (row) => {
    if (hay[row.index] === undefined) {
      const parts = row.k === "call"
        ? [row.tool, row.line, row.id, row.error, row.message, ...row.input.flatMap(([name, body]) => [name, text(body)]),
          text(row.result), ...row.diffs.map((diff) => `${diff.path}\n${text(diff.body)}`), ...row.events.map((event) => event[1])]
        : row.k === "message" ? [text(row.body)] : [agents[row.agent].role, agents[row.agent].name];
      hay[row.index] = parts.filter(Boolean).join("\n").toLowerCase();
    }
    return hay[row.index];
  };
  const passes = (row) => {
    if (wanted.agent && String(row.agent) !== wanted.agent) return false;
    if (row.k === "call") {
      if (wanted.states.size && !wanted.states.has(row.state)) return false;
      if (wanted.tool && row.tool !== wanted.tool) return false;
    } else if (wanted.states.size || wanted.tool) return false;
    if (row.k === "message" && (!wanted.words || (row.voice === "thinking" && !wanted.thinking && !wanted.query))) return false;
    return !wanted.query || haystack(row).includes(wanted.query);
  };

  /* Waterfall */
  const [first, last] = rows.reduce(([low, high], row) => {
    const times = [row.at, row.end].filter((ms) => typeof ms === "number");
    return [Math.min(low, ...times), Math.max(high, ...times)];
  }, [Infinity, -Infinity]);
  const busy = calls.filter((row) => row.at !== null && row.end !== null).map((row) => [row.at, row.end]).sort((a, b) => a[0] - b[0]);
  const idle = () => {
    /* Intervals in which the main conversation waits for the user and no call runs. */
    const found = [];
    let b = 0;
    for (const [start, end, part] of slices) {
      if (part !== "idle") continue;
      let at = start;
      while (b > 0 && busy[b - 1][1] > start) b -= 1;
      for (let n = b; n < busy.length && busy[n][0] < end; n += 1) {
        if (busy[n][1] <= at) continue;
        if (busy[n][0] > at) found.push([at, busy[n][0]]);
        at = Math.max(at, busy[n][1]);
      }
      if (at < end) found.push([at, end]);
    }
    return found;
  };
  let pieces = [];
  const measure = (folded) => {
    /* Maps a time to a position from 0 to 1; linear pieces, narrow ones for folded gaps. */
    const work = Math.max(1, last - first - idle().reduce((sum, [a, b]) => sum + b - a, 0));
    const least = Math.max(5000, work * 0.03);
    const gaps = folded ? idle().filter(([a, b]) => b - a > least) : [];
    const share = gaps.length ? Math.min(0.03, 0.3 / gaps.length) : 0;
    const rest = Math.max(1, last - first - gaps.reduce((sum, [a, b]) => sum + b - a, 0));
    const scale = (1 - share * gaps.length) / rest;
    pieces = [];
    let at = first, x = 0;
    const push = (end, width, gap) => {
      pieces.push({ start: at, end, x, width, gap });
      at = end;
      x += width;
    };
    for (const [a, b] of gaps) {
      if (a > at) push(a, (a - at) * scale, false);
      push(b, share, true);
    }
    if (last > at || !pieces.length) push(Math.max(last, at + 1), Math.max(0, 1 - x), false);
  };
  const place = (ms) => {
    let low = 0, high = pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pieces[middle].start <= ms) low = middle; else high = middle - 1;
    }
    const piece = pieces[low];
    const part = (ms - piece.start) / Math.max(1, piece.end - piece.start);
    return 100 * (piece.x + piece.width * Math.min(1, Math.max(0, part)));
  };
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000,
    900000, 1800000, 3600000, 7200000, 14400000, 43200000, 86400000, 604800000, 2592000000];
  let zoom = 1;
  let bars = [];
  let axis = null;
  const ticks = () => {
    axis.replaceChildren();
    const width = axis.clientWidth || 1;
    for (const piece of pieces) {
      const room = piece.width * width;
      if (piece.gap) {
        const gap = make("div", "gap", room > 34 ? `⋯ ${duration(piece.end - piece.start)}` : "⋯");
        gap.style.left = `${100 * piece.x}%`;
        gap.style.width = `${100 * piece.width}%`;
        gap.title = `${duration(piece.end - piece.start)} idle`;
        axis.append(gap);
        continue;
      }
      const step = STEPS.find((ms) => ms / (piece.end - piece.start) * room >= 84) || 1e15;
      const base = piece.x === 0 ? piece.start : Math.ceil(piece.start / step) * step;
      for (let at = base, n = 0; at < piece.end && n < 400; at += step, n += 1) {
        const x = place(at);
        const cramped = (piece.x + piece.width) * width - x * width / 100 < 52;
        if (cramped) continue;
        const tick = make("div", "tick", step < 1000 ? `+${duration(at - first)}` : clock(at));
        tick.style.left = `${x}%`;
        axis.append(tick);
      }
    }
  };
  const lane = (className, name, about, height) => {
    const row = make("div", `lane ${className}`);
    const label = make("div", "lane-label");
    if (name) label.append(make("b", "", name));
    if (about) label.append(make("span", "", about));
    const track = make("div", "track");
    if (height) track.style.height = `${height}px`;
    row.append(label, track);
    return [row, track];
  };
  const span = (element, start, end) => {
    const left = place(start);
    element.style.left = `${left}%`;
    element.style.width = `${Math.max(0, place(end) - left)}%`;
  };
  const bar = (row) => {
    const element = make("button", `bar s-${row.state}`);
    element.type = "button";
    element.tabIndex = -1;
    element.dataset.n = row.n;
    element.style.top = `${row.lane * 17}px`;
    element.setAttribute("aria-label", `${row.tool}, ${row.state}, ${duration(row.took)}`);
    const end = row.end === null ? row.at : Math.max(row.at, row.end);
    span(element, row.at, end);
    if (row.end === null) element.classList.add("endless");
    if (end - row.at > (last - first) * 0.02 / zoom) element.append(row.tool);
    for (const [start, stop, phase] of row.phases) {
      if (end <= row.at) break;
      const piece = make("i", `p-${phase}`);
      piece.style.left = `${100 * (start - row.at) / (end - row.at)}%`;
      piece.style.width = `${100 * (stop - start) / (end - row.at)}%`;
      element.append(piece);
    }
    return element;
  };
  const draw = () => {
    const chart = $("chart");
    chart.replaceChildren();
    bars = [];
    if (!Number.isFinite(first) || !calls.length) { $("waterfall").hidden = true; return; }
    measure($("fold").checked);
    const [top, track] = lane("axis", "", "UTC");
    axis = track;
    chart.append(top);
    if (slices.length) {
      const [use, strip] = lane("uses", "", "used for");
      strip.classList.add("use");
      for (const [start, end, part] of slices) {
        const piece = make("i", `part-${part}`);
        span(piece, start, end);
        strip.append(piece);
      }
      chart.append(use);
    }
    const lives = [];
    for (const row of rows) if (row.k === "agent" && row.at !== null && row.end !== null) lives[row.agent] = [row.at, row.end];
    const tracks = agents.map((agent, n) => {
      const own = calls.filter((row) => row.agent === n);
      const name = n === 0 ? "main" : agent.role;
      const about = `${plural(own.length, "call")}${n ? ` · ${agent.name.slice(0, 8)}` : ""}`;
      const [row, place] = lane("calls", name, about, Math.max(26, agent.lanes * 17 - 3));
      row.querySelector(".lane-label").title = `${name} ${agent.name}`;
      chart.append(row);
      for (const piece of pieces.filter((one) => one.gap)) {
        const gap = make("div", "gap");
        gap.style.left = `${100 * piece.x}%`;
        gap.style.width = `${100 * piece.width}%`;
        place.append(gap);
      }
      if (!own.length) row.hidden = true;
      if (lives[n]) {
        const life = make("div", "life");
        span(life, ...lives[n]);
        place.append(life);
      }
      return place;
    });
    for (const row of calls) {
      if (row.at === null || row.lane === null) continue;
      const element = bar(row);
      bars[row.n] = element;
      tracks[row.agent].append(element);
    }
    resize();
    dim();
  };
  const resize = () => {
    $("chart").style.width = `${100 * zoom}%`;
    if (axis) ticks();
  };
  const dim = () => {
    for (const row of calls) if (bars[row.n]) bars[row.n].classList.toggle("off", !passes(row));
  };
  const scale = (factor, centre) => {
    const box = $("scroll");
    const at = (box.scrollLeft + (centre ?? box.clientWidth / 2)) / box.scrollWidth;
    zoom = Math.min(400, Math.max(1, factor === 0 ? 1 : zoom * factor));
    resize();
    box.scrollLeft = at * box.scrollWidth - (centre ?? box.clientWidth / 2);
  };
  $("in").addEventListener("click", () => scale(2));
  $("out").addEventListener("click", () => scale(0.5));
  $("fit").addEventListener("click", () => scale(0));
  $("fold").addEventListener("change", draw);
  $("scroll").addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    scale(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - $("scroll").getBoundingClientRect().left);
  }, { passive: false });
  const hit = (event) => calls[event.target.closest?.(".bar")?.dataset.n];
  $("chart").addEventListener("click", (event) => { const row = hit(event); if (row) visit(row, true); });
  $("chart").addEventListener("mousemove", (event) => {
    const row = hit(event);
    const tip = $("tip");
    tip.hidden = !row;
    if (!row) return;
    const waits = row.phases.map(([start, end, phase]) => `${phase} ${duration(end - start)}`);
    tip.replaceChildren(
      make("b", "", `${GLYPHS[row.state]} ${row.tool} · ${row.state.replaceAll("_", " ")}${row.error ? ` (${row.error})` : ""}`),
      make("span", "", [clock(row.at), duration(row.took), ...waits].filter(Boolean).join(" · ")),
      make("code", "", row.line),
    );
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(event.clientX + 12, innerWidth - box.width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
  });
  $("chart").addEventListener("mouseleave", () => { $("tip").hidden = true; });

  /* Timeline */
  const opened = new Set();
  const elements = new Map();
  let shown = [];
  let chunks = [];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) fill(entry.target);
  }, { rootMargin: "1200px 0px" });
  const fill = (chunk) => {
    if (chunk.dataset.full) return;
    chunk.dataset.full = "1";
    watcher.unobserve(chunk);
    const from = Number(chunk.dataset.from);
    const made = document.createDocumentFragment();
    for (let n = from; n < Math.min(from + CHUNK, shown.length); n += 1) {
      const before = n ? shown[n - 1] : null;
      const quiet = gapBefore(before, shown[n]);
      if (quiet) made.append(make("div", "gone", `${duration(quiet)} later`));
      made.append(rowElement(shown[n], before, shown[n + 1]));
    }
    chunk.style.minHeight = "";
    chunk.replaceChildren(made);
  };
  const gapBefore = (before, row) => {
    if (!before || row.depth || before.depth || row.at === null || before.at === null) return 0;
    const ms = row.at - Math.max(before.at, before.end || 0);
    return ms > QUIET ? ms : 0;
  };
  const summary = (row) => {
    const what = make("span", "what");
    what.dir = "auto";
    if (row.k === "call") {
      what.append(make("b", "", row.tool), make("code", "", row.line));
    } else if (row.k === "agent") {
      what.textContent = `↳ ${agents[row.agent].role} · ${plural(row.calls, "call")}${row.linked ? "" : " · started by an unknown call"}`;
    } else {
      what.textContent = row.voice === "summary" ? `summary for the model, ${number(row.chars)} characters` : row.line;
    }
    return what;
  };
  const aside = (row) => {
    const side = make("span", "side");
    if (row.k === "message") {
      if (row.chars > 240) side.append(make("span", "", `${number(row.chars)} chars`));
      if (!["prompt", "text"].includes(row.voice)) side.append(make("span", "tag", SPEAKERS[row.voice]));
      return side;
    }
    if (row.k === "agent") {
      if (row.at !== null && row.end !== null) side.append(make("span", "", duration(row.end - row.at)));
      return side;
    }
    for (const flag of row.flags) side.append(make("span", "tag", flag));
    if (row.together) side.append(make("span", "tag", `∥ ${row.together}`));
    if (row.lines) side.append(make("span", "plus", `+${row.lines[0]}`), make("span", "minus", `−${row.lines[1]}`));
    if (row.state !== "succeeded") side.append(make("span", "tag bad", (row.error || row.state).replaceAll("_", " ")));
    side.append(make("span", "", duration(row.took)));
    return side;
  };
  const rowElement = (row, before, after) => {
    const element = make("article", `row ${row.k}`);
    element.id = row.k === "call" ? `c${row.n}` : `r${row.index}`;
    element.dataset.index = row.index;
    if (row.k === "call") {
      element.classList.add(`s-${row.state}`);
      const same = (other) => other && other.k === "call" && other.batch === row.batch && other.agent === row.agent;
      if (row.together && (same(before) || same(after))) element.classList.add("batch");
    }
    if (row.k === "message") element.classList.add(`v-${row.voice}`);
    if (row.opens && !row.depth) element.classList.add("prompt");
    if (row.branch === "abandoned") { element.classList.add("away"); element.title = "left behind by a rewind"; }
    if (row.depth) { element.classList.add("nest"); element.style.setProperty("--depth", row.depth); }
    const head = make(row.k === "agent" ? "div" : "button", "head");
    head.append(make("span", "time", clock(row.at)),
      make("span", "glyph", row.k === "call" ? GLYPHS[row.state] : row.k === "message" ? VOICES[row.voice] : ""),
      summary(row), aside(row));
    if (row.k === "call" && row.state !== "succeeded" && row.message) head.append(make("span", "why", row.message));
    element.append(head);
    if (row.k !== "agent") {
      head.type = "button";
      head.setAttribute("aria-expanded", "false");
      head.addEventListener("click", () => toggle(row));
    }
    elements.set(row.index, element);
    if (opened.has(row.index)) expand(row, element);
    return element;
  };
  const toggle = (row, force) => {
    const element = elements.get(row.index);
    const open = force ?? !opened.has(row.index);
    if (open === element.classList.contains("open")) return;
    if (open) { opened.add(row.index); expand(row, element); return; }
    opened.delete(row.index);
    element.classList.remove("open");
    element.querySelector(".body").remove();
    element.firstChild.setAttribute("aria-expanded", "false");
  };
  const expand = (row, element) => {
    element.classList.add("open");
    element.firstChild.setAttribute("aria-expanded", "true");
    element.append(row.k === "call" ? callBody(row) : messageBody(row));
  };
  const marked = (element, words) => {
    /* A text with the search term marked, up to a few hundred times. */
    const query = wanted.query;
    const low = query ? words.toLowerCase() : "";
    if (!query || low.length !== words.length) { element.textContent = words; return element; }
    let at = 0;
    for (let n = 0, found; n < 300 && (found = low.indexOf(query, at)) >= 0; n += 1) {
      element.append(words.slice(at, found), make("mark", "", words.slice(found, found + query.length)));
      at = found + query.length;
    }
    element.append(words.slice(at));
    return element;
  };
  const pre = (words, className) => {
    const element = marked(make("pre", className), words);
    element.dir = "auto";
    element.tabIndex = 0;
    return element;
  };
  const section = (title, about, ...content) => {
    const part = make("section");
    const head = make("h3", "", title);
    if (about) head.append(make("span", "", about));
    part.append(head, ...content);
    return part;
  };
  const messageBody = (row) => {
    const body = make("div", "body");
    body.append(pre(text(row.body), "said"));
    return body;
  };
  const diffBlock = (diff) => {
    const element = make("pre", "diff");
    element.tabIndex = 0;
    for (const line of text(diff.body).split("\n")) {
      const kind = line.startsWith("@@") || line.startsWith("---") || line.startsWith("+++") ? "h" : line[0] === "+" ? "a" : line[0] === "-" ? "d" : "";
      element.append(make("span", kind, line));
    }
    const count = diff.added === null ? "" : ` +${diff.added} −${diff.removed}`;
    return section(diff.kind, `${diff.path}${count}`, ...(text(diff.body) ? [element] : []));
  };
  const callBody = (row) => {
    const body = make("div", "body");
    if (row.problem) body.append(make("div", "advice", row.problem));
    if (row.advice) body.append(make("div", "advice", `${row.advice[0]}. ${row.advice[1]}.`));
    body.append(...row.diffs.map(diffBlock));
    if (row.input.length) {
      body.append(section("input", "", ...row.input.map(([name, number]) => {
        if (!name) return pre(text(number));
        const field = make("div", "field");
        field.append(make("span", "", name), pre(text(number)));
        return field;
      })));
    }
    if (row.result !== null) body.append(section("result", "", pre(text(row.result) || "(empty)")));
    const list = make("dl", "facts");
    const fact = (name, value, className) => { if (value) list.append(make("dt", "", name), make("dd", className, value)); };
    fact("call", row.id, "mono");
    fact("asked", row.at === null ? "" : `${day(row.at)} ${clock(row.at)} UTC`);
    fact("took", duration(row.took));
    for (const [start, end, phase] of row.phases) fact(phase, `${duration(end - start)}${phase === "permission" ? ` (${row.wait})` : ""}`);
    fact("exit code", row.exit === null ? "" : String(row.exit));
    for (const [kind, words] of row.events) fact(kind, words);
    for (const words of row.evidence) fact("because", words);
    fact("at", row.place, "mono");
    body.append(section("facts", "", list));
    return body;
  };
  const refresh = () => {
    shown = rows.filter(passes);
    elements.clear();
    watcher.disconnect();
    const list = $("list");
    list.replaceChildren();
    chunks = [];
    for (let from = 0; from < shown.length; from += CHUNK) {
      const chunk = make("div", "chunk");
      chunk.dataset.from = from;
      chunk.style.minHeight = `${34 * Math.min(CHUNK, shown.length - from)}px`;
      chunks.push(chunk);
      list.append(chunk);
      watcher.observe(chunk);
    }
    if (chunks.length) fill(chunks[0]); else list.append(make("p", "empty", "No rows match these filters."));
    const found = shown.filter((row) => row.k === "call").length;
    const filtered = wanted.query || wanted.tool || wanted.agent || wanted.states.size || !wanted.words;
    $("count").textContent = filtered ? `${plural(found, "call")} of ${number(calls.length)}` : plural(found, "call");
    $("clear").hidden = !filtered;
    dim();
  };
  const element = (row) => {
    const at = shown.indexOf(row);
    if (at < 0) return null;
    fill(chunks[Math.floor(at / CHUNK)]);
    return elements.get(row.index);
  };
  const visit = (row, open) => {
    if (!passes(row)) clear();
    const target = element(row);
    if (!target) return;
    if (open) toggle(row, true);
    target.scrollIntoView({ block: open ? "start" : "nearest" });
    target.firstChild.focus({ preventScroll: true });
    for (const flashed of document.querySelectorAll(".flash")) flashed.classList.remove("flash");
    target.classList.add("flash");
    for (const here of document.querySelectorAll(".bar.here")) here.classList.remove("here");
    if (row.k === "call") bars[row.n]?.classList.add("here");
  };

  /* Keys */
  const current = () => {
    const index = document.activeElement?.closest?.(".row")?.dataset.index;
    return index === undefined ? -1 : shown.indexOf(rows[index]);
  };
  const step = (by, fits) => {
    const from = current();
    for (let n = from < 0 && by < 0 ? shown.length - 1 : from + by; n >= 0 && n < shown.length; n += by) {
      if (fits(shown[n])) { visit(shown[n], false); return; }
    }
  };
  const KEYS = {
    j: () => step(1, (row) => row.k !== "agent"),
    k: () => step(-1, (row) => row.k !== "agent"),
    n: () => step(1, (row) => row.k === "call" && row.state !== "succeeded"),
    N: () => step(-1, (row) => row.k === "call" && row.state !== "succeeded"),
    "/": () => $("search").focus(),
    "+": () => scale(2),
    "-": () => scale(0.5),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") { clear(); document.activeElement?.blur?.(); return; }
    if (event.target.closest?.("input, select")) return;
    if (!KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  addEventListener("resize", () => { if (axis) ticks(); });
  const follow = () => {
    const found = /^#c(\d+)$/.exec(location.hash);
    if (found && calls[found[1]]) visit(calls[found[1]], true);
  };
  addEventListener("hashchange", follow);

  $("fold-box").hidden = !idle().some(([a, b]) => b - a > 5000);
  refresh();
  draw();
  follow();
  document.documentElement.dataset.ready = "yes";
})();
