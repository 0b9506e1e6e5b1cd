// The waterfall of a session on a canvas: time split, context, calls in lanes, waits, hooks, background tasks and
// subagents, with a minimap. The list of calls below it says the same in text.
//
// <Waterfall model scale zoom range control selected closed matches onZoom onRange onSelect onToggle />
//   zoom, range  [start, end] in milliseconds after the start, or null
//   matches      of matchCalls: which calls are drawn in full; null for all
//   control      a ref that gets { setVisible([start, end]) }: mark what the list shows
import { escapeText } from "../visible.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { clock, dateTime, day, duration, number, short, token, words } from "./format.js";
import { hiddenAgents, marksOf } from "./timeline-model.js";
import { STATES, isUnsuccessful, kindName } from "./words.js";

const LANE = 12;
const AXIS = 20;
const MINIMAP = 30;
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5,
  432e5, 864e5, 6048e5, 2592e6,
];
const PARTS = {
  model: "info",
  tools: "accent",
  permission: "warn",
  hooks: "odd",
  idle: "muted-soft",
  nothing_recorded: "muted-soft",
};
const PHASES = { permission: "warn", hooks: "odd" };

export function Waterfall({
  model,
  scale,
  zoom,
  range,
  control,
  selected,
  closed,
  matches,
  onZoom,
  onRange,
  onSelect,
  onToggle,
}) {
  const box = useRef(null);
  const canvas = useRef(null);
  const bars = useRef(null);
  const overlay = useRef(null);
  const minimap = useRef(null);
  const frame = useRef(null);
  const drag = useRef(null);
  const [size, setSize] = useState({ width: 0, ratio: 1 });
  const [theme, setTheme] = useState(0);
  const [tip, setTip] = useState(null);
  const [draft, setDraft] = useState(null);
  const [visible, setVisible] = useState(null); // perf: here, so that scrolling draws only the overlays again
  control.current = {
    setVisible: (pair) => setVisible((old) => (old && pair && old[0] === pair[0] && old[1] === pair[1] ? old : pair)),
  };
  const about = useMemo(() => summary(model), [model]);
  const label = size.width < 600 ? 64 : 112;
  const tracks = useMemo(() => layOut(model, closed), [model, closed]);
  const marks = useMemo(() => marksOf(model), [model]);
  const width = Math.max(50, size.width - label);
  const [left, right] = zoom ? [scale.place(zoom[0]), scale.place(zoom[1])] : [0, 1];
  const span = Math.max(1e-7, right - left);
  const x = (ms) => label + ((scale.place(ms) - left) / span) * width;
  const timeAt = (pixels) => scale.time(Math.min(1, Math.max(0, left + ((pixels - label) / width) * span)));

  useEffect(() => {
    const observer = new ResizeObserver(
      () => box.current && setSize({ width: box.current.clientWidth, ratio: devicePixelRatio || 1 }),
    );
    observer.observe(box.current);
    const repaint = () => setTheme((n) => n + 1);
    const attributes = new MutationObserver(repaint);
    attributes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", repaint);
    return () => {
      observer.disconnect();
      attributes.disconnect();
      dark.removeEventListener("change", repaint);
    };
  }, []);

  useEffect(() => {
    if (size.width)
      drawTracks(canvas.current, { model, tracks, marks, x, scale, label, width: size.width, ratio: size.ratio });
  }, [model, tracks, scale, left, right, size, theme]);
  const edges = useMemo(() => callEdges(model, x), [model, scale, left, right, size]);
  useEffect(() => {
    if (size.width) drawCalls(bars.current, { tracks, edges, label, width: size.width, ratio: size.ratio, matches });
  }, [tracks, edges, theme, matches]);
  useEffect(() => {
    if (size.width)
      drawOverlay(overlay.current, {
        tracks,
        x,
        label,
        width: size.width,
        ratio: size.ratio,
        visible,
        range: draft ?? range,
        selected,
      });
  }, [tracks, scale, left, right, size, theme, visible, range, draft, selected]);
  useEffect(() => {
    if (size.width) drawMinimap(minimap.current, { model, marks, scale, label, width: size.width, ratio: size.ratio });
  }, [model, scale, size, theme]);
  useEffect(() => {
    if (size.width)
      drawWindow(frame.current, { scale, label, width: size.width, ratio: size.ratio, view: [left, right], visible });
  }, [scale, left, right, size, theme, visible]);

  // Wheel: zoom around the pointer; sideways or with Shift: move.
  const wheel = useRef(null);
  wheel.current = (event) => {
    const at = event.clientX - canvas.current.getBoundingClientRect().left;
    if (at < label) return;
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (sideways) setView(left + (sideways / width) * span, right + (sideways / width) * span);
    else {
      const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240)));
      const centre = left + ((at - label) / width) * span;
      setView(centre - (centre - left) * factor, centre + (right - centre) * factor);
    }
  };
  useEffect(() => {
    const element = overlay.current;
    const listener = (event) => wheel.current(event);
    element.addEventListener("wheel", listener, { passive: false });
    return () => element.removeEventListener("wheel", listener);
  }, []);
  const setView = (one, other) => {
    const wide = Math.max(1e-6, Math.min(1, other - one));
    const start = Math.max(0, Math.min(1 - wide, one));
    onZoom(wide > 0.999 ? null : [scale.time(start), scale.time(start + wide)]);
  };

  const hit = (event) => {
    const bounds = canvas.current.getBoundingClientRect();
    return find(tracks, event.clientX - bounds.left, event.clientY - bounds.top, { label, x });
  };
  const down = (event) => {
    if (event.button !== 0) return;
    const at = event.clientX - canvas.current.getBoundingClientRect().left;
    drag.current = { at, ends: null };
    overlay.current.setPointerCapture(event.pointerId);
  };
  const move = (event) => {
    const at = event.clientX - canvas.current.getBoundingClientRect().left;
    if (drag.current && drag.current.at > label && (drag.current.ends || Math.abs(at - drag.current.at) > 4)) {
      const ends = [timeAt(drag.current.at), timeAt(at)].sort((a, b) => a - b);
      drag.current.ends = ends; // the pointer may be up before the draft is drawn
      setDraft(ends);
      setTip({
        x: event.clientX,
        y: event.clientY,
        lines: [
          duration(ends[1] - ends[0]),
          `${clock(new Date(model.base + ends[0]))} to ${clock(new Date(model.base + ends[1]))}`,
        ],
      });
      return;
    }
    const found = hit(event);
    overlay.current.style.cursor = found ? "pointer" : at > label ? "crosshair" : "default";
    setTip(found ? { x: event.clientX, y: event.clientY, lines: describe(found, model) } : null);
  };
  const up = (event) => {
    const ends = drag.current?.ends;
    drag.current = null;
    setTip(null);
    if (ends) {
      onRange(ends);
      setDraft(null);
      return;
    }
    const found = hit(event);
    if (found?.call) onSelect(found.call);
    else if (found?.toggle !== undefined) onToggle(found.toggle);
    else if (range) onRange(null);
  };

  // Minimap: drag to zoom to a part, or drag the shown part.
  const pull = useRef(null);
  const shareAt = (event) => (event.clientX - minimap.current.getBoundingClientRect().left - label) / width;
  const pullStart = (event) => {
    const at = shareAt(event);
    pull.current = zoom && at > left && at < right ? { offset: at - left, wide: span } : { from: at };
    frame.current.setPointerCapture(event.pointerId);
  };
  const pullMove = (event) => {
    if (!pull.current) return;
    const at = shareAt(event);
    if (pull.current.from === undefined)
      setView(at - pull.current.offset, at - pull.current.offset + pull.current.wide);
    else if (Math.abs(at - pull.current.from) > 0.004)
      setView(Math.min(at, pull.current.from), Math.max(at, pull.current.from));
  };
  const pullEnd = (event) => {
    const from = pull.current?.from;
    pull.current = null;
    if (from !== undefined && Math.abs(shareAt(event) - from) <= 0.004 && zoom)
      setView(shareAt(event) - span / 2, shareAt(event) + span / 2);
  };

  return html`<div class="waterfall" ref=${box}>
    <div class="minimap"><canvas ref=${minimap}></canvas>
      <canvas class="over" ref=${frame} onPointerDown=${pullStart} onPointerMove=${pullMove} onPointerUp=${pullEnd}
        onDblClick=${() => onZoom(null)}></canvas></div>
    <div class="lanes" tabindex="0" role="img" aria-label=${about}>
      <div class="stack" style=${{ height: `${tracks.height}px` }}>
        <canvas ref=${canvas}></canvas><canvas ref=${bars} class="calls"></canvas>
        <canvas ref=${overlay} class="over" onPointerDown=${down} onPointerMove=${move} onPointerUp=${up}
          onPointerLeave=${() => setTip(null)} onDblClick=${() => onZoom(null)}></canvas>
      </div>
    </div>
    ${tip ? html`<${Tip} ...${tip} />` : null}
  </div>`;
}

function Tip({ x, y, lines }) {
  const style = {
    left: `${Math.min(x + 14, innerWidth - 330)}px`,
    top: `${y + 18 > innerHeight - 110 ? y - 90 : y + 18}px`,
  };
  return html`<div class="tip" role="presentation" style=${style}>
    ${lines.filter(Boolean).map((line, n) => (n ? html`<span>${line}</span>` : html`<b>${line}</b>`))}</div>`;
}

const summary = (model) =>
  [
    `Waterfall: ${number(model.calls.length)} calls in ${duration(model.to - model.from)},`,
    `${number(model.calls.filter(isUnsuccessful).length)} of them unsuccessful. The list below has the same calls.`,
  ].join(" ");

// Return the tracks from top to bottom: { kind, top, height, label, … }.
function layOut(model, closed) {
  const tracks = [];
  let top = AXIS;
  const add = (kind, height, rest) => {
    tracks.push({ kind, top, height, ...rest });
    top += height;
  };
  if (model.slices.count) add("split", 12, { label: "used for" });
  if (model.requests.length) add("context", 26, { label: "context" });
  const hidden = hiddenAgents(model.agentOrder, closed);
  const byAgent = model.agents.map(() => []);
  for (const call of model.calls) if (call.at !== null && call.lane !== null) byAgent[call.thread].push(call);
  const addAgent = (agent) => {
    const isClosed = closed.has(agent.n);
    if (!isClosed && hidden.has(agent.n)) return;
    if (agent.above !== null && hidden.has(agent.above)) return;
    const lanes = isClosed ? 1 : agent.lanes;
    add("agent", lanes * LANE + 6, {
      agent,
      calls: byAgent[agent.n],
      closed: isClosed,
      lanes,
      label:
        agent.n === 0
          ? "main"
          : `${"  ".repeat(Math.max(0, agent.depth - 1))}${isClosed ? "▸" : "▾"} ${
              agent.name || agent.role || "subagent"
            }`,
    });
  };
  addAgent(model.agents[0]);
  for (const phase of Object.keys(PHASES)) {
    const intervals = model.phases.filter((one) => one.phase === phase && one.end > one.start);
    if (intervals.length) add("phase", 12, { phase, intervals, label: phase === "hooks" ? "hooks" : "permission" });
  }
  const background = model.calls.filter(({ until, at }) => until !== null && at !== null);
  if (background.length) add("background", 12, { background, label: "background" });
  model.agentOrder.slice(1).forEach(addAgent);
  return Object.assign(tracks, { height: top + 4 });
}

function prepare(canvas, width, height, ratio) {
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${token("font")}`;
  context.textBaseline = "middle";
  return context;
}

const COLOURS = [
  "text",
  "muted",
  "faint",
  "line",
  "accent",
  "bad",
  "warn",
  "odd",
  "info",
  "muted-soft",
  "on-accent",
  "accent-soft",
  "info-soft",
  "hover",
  "font",
];
const readColours = () => Object.fromEntries(COLOURS.map((name) => [name, token(name)]));

// Everything but the calls, which filters change.
function drawTracks(canvas, { model, tracks, marks, x, scale, label, width, ratio }) {
  const g = prepare(canvas, width, tracks.height, ratio);
  const colours = readColours();
  g.save();
  g.beginPath();
  g.rect(label, 0, width - label, tracks.height);
  g.clip();
  drawAxis(g, { model, tracks, x, scale, label, width, colours });
  for (const track of tracks) {
    if (track.kind === "split") drawSplit(g, { model, track, x, label, width, colours });
    else if (track.kind === "context") drawContext(g, { model, track, x, colours });
    else if (track.kind === "agent") drawLifetime(g, track, x, colours["accent-soft"]);
    else if (track.kind === "phase") drawPhase(g, { track, x, label, width, colour: colours[PHASES[track.phase]] });
    else for (const call of track.background) bar(g, x(call.at), x(call.until), track.top + 2, 8, colours.info, 1.5);
  }
  for (const { at, mark } of marks) {
    const where = Math.round(x(at)) + 0.5;
    if (where < label || where > width) continue;
    g.strokeStyle = mark === "compacted" ? colours.odd : colours.info;
    g.setLineDash([3, 3]);
    line(g, where, AXIS - 4, where, tracks.height);
    g.setLineDash([]);
    g.fillStyle = g.strokeStyle;
    g.fillText(mark === "compacted" ? "≡" : "↻", where + 3, AXIS + 6);
  }
  g.restore();
  for (const track of tracks) {
    g.fillStyle = track.kind === "agent" ? colours.text : colours.faint;
    g.fillText(fit(g, escapeText(track.label), label - 14), 6, track.top + Math.min(track.height, LANE + 6) / 2);
    if (track.kind === "agent") {
      g.strokeStyle = colours.line;
      line(g, 0, track.top + 0.5, width, track.top + 0.5);
    }
  }
}

function drawAxis(g, { model, tracks, x, scale, label, width, colours }) {
  let date = null; // shown where it changes
  for (const piece of scale.pieces) {
    const [from, to] = [x(piece.start), x(piece.end)];
    if (to < label || from > width) continue;
    if (piece.gap) {
      g.fillStyle = colours.hover;
      g.fillRect(from, AXIS, to - from, tracks.height);
      g.fillStyle = colours.faint;
      const text = `⋯ ${duration(piece.end - piece.start)}`;
      g.fillText(to - from > g.measureText(text).width + 4 ? text : "⋯", from + 2, AXIS / 2);
      continue;
    }
    const perPixel = (piece.end - piece.start) / Math.max(1e-6, to - from);
    const step = STEPS.find((ms) => ms / perPixel >= 84) ?? 1e15;
    const first = model.base + piece.start + Math.max(0, (label - from) * perPixel);
    const offset = new Date(first).getTimezoneOffset() * 60_000;
    let at = Math.ceil((first - offset) / step) * step + offset - model.base;
    for (let n = 0; at < piece.end && n < 200; at += step, n += 1) {
      const where = Math.round(x(at)) + 0.5;
      if (where > width) break;
      g.strokeStyle = colours.line;
      line(g, where, AXIS, where, tracks.height);
      if (to - where < 54) continue;
      g.fillStyle = colours.faint;
      const time = new Date(model.base + at);
      const text = step < 60_000 ? clock(time) : clock(time).slice(0, 5);
      g.fillText(
        step < 1000 ? `+${duration(at)}` : day(time) === date ? text : `${day(time).slice(5)} ${text}`,
        where + 3,
        AXIS / 2,
      );
      date = day(time);
    }
  }
}

// What the time was used for. Of parts narrower than a pixel, each pixel shows the one that took most of it.
function drawSplit(g, { model, track, x, label, width, colours }) {
  const { count, starts, ends, parts, names } = model.slices;
  const pixels = new Map();
  for (let n = 0, to = count ? x(starts[0]) : 0; n < count; n += 1) {
    const from = n && starts[n] === ends[n - 1] ? to : x(starts[n]);
    to = x(ends[n]);
    if (to < label || from > width) continue;
    if (to - from >= 1.5) bar(g, from, to, track.top + 2, 7, colours[PARTS[names[parts[n]]]], 0);
    else {
      const pixel = Math.floor(from);
      if (!pixels.has(pixel)) pixels.set(pixel, {});
      const sums = pixels.get(pixel);
      sums[parts[n]] = (sums[parts[n]] ?? 0) + to - from;
    }
  }
  for (const [pixel, sums] of pixels) {
    const most = Object.keys(sums).reduce((one, other) => (sums[other] > sums[one] ? other : one));
    bar(g, pixel, pixel + 1, track.top + 2, 7, colours[PARTS[names[most]]], 0);
  }
}

function drawPhase(g, { track, x, label, width, colour }) {
  let last = null; // perf: one bar per pixel
  for (const { start, end } of track.intervals) {
    const [from, to] = [x(start), x(end)];
    if (to < label || from > width || (to - from < 2 && Math.round(from) === last)) continue;
    last = Math.round(from);
    bar(g, from, to, track.top + 2, 8, colour, 1.5);
  }
}

// How full the context was: one step per request of the main conversation.
function drawContext(g, { model, track, x, colours }) {
  const own = model.requests.filter(({ thread }) => thread === 0);
  if (!own.length) return;
  const [bottom, height, most] = [
    track.top + track.height - 2,
    track.height - 5,
    model.window && model.peak > model.window / 3 ? model.window : model.peak || 1,
  ];
  g.beginPath();
  g.moveTo(x(own[0].at), bottom);
  let [last, peak] = [null, 0]; // perf: one step per pixel, the highest of its requests
  own.forEach((request, n) => {
    const pixel = Math.round(x(request.at));
    peak = pixel === last ? Math.max(peak, request.context) : request.context;
    last = pixel;
    const next = own[n + 1];
    if (next && Math.round(x(next.at)) === pixel) return;
    const y = bottom - (peak / most) * height;
    g.lineTo(x(request.at), y);
    g.lineTo(x(next?.at ?? model.to), y);
  });
  g.lineTo(x(model.to), bottom);
  g.fillStyle = colours["info-soft"];
  g.fill();
  g.strokeStyle = colours.info;
  g.lineWidth = 1;
  g.stroke();
}

function drawLifetime(g, { agent, top, height }, x, colour) {
  if (agent.n && agent.start !== null && agent.end !== null)
    bar(g, x(agent.start), x(agent.end), top + 3, height - 6, colour, 3);
}

// Return where the bar of each call starts and ends. perf: a filter draws the bars again, but does not move them
function callEdges(model, x) {
  const edges = new Float32Array(2 * model.calls.length);
  for (const call of model.calls) {
    edges[2 * call.n] = x(call.at);
    edges[2 * call.n + 1] = x(call.end ?? call.at);
  }
  return edges;
}

function drawCalls(canvas, { tracks, edges, label, width, ratio, matches }) {
  const g = prepare(canvas, width, tracks.height, ratio);
  const colours = readColours();
  g.beginPath();
  g.rect(label, 0, width - label, tracks.height);
  g.clip();
  for (const track of tracks)
    if (track.kind === "agent" && !track.closed) drawLanes(g, { track, edges, label, width, colours, matches });
}

const RANKS = ["good", "muted", "info", "warn", "odd", "bad"];

function drawLanes(g, { track, edges, label, width, colours, matches }) {
  const [pixels, ranks] = [[], []]; // perf: of calls narrower than a pixel, the worst one per pixel and lane is drawn
  for (const call of track.calls) {
    const from = edges[2 * call.n];
    const to = Math.max(from + 1.5, edges[2 * call.n + 1]);
    if (to < label || from > width) continue;
    const tone = STATES[call.state]?.[1] ?? "muted";
    const off = matches !== null && !matches[call.n];
    if (to - from < 2) {
      const [pixel, rank] = [Math.round(from), off ? -1 : RANKS.indexOf(tone)];
      if (pixels[call.lane] === pixel && ranks[call.lane] >= rank) continue;
      pixels[call.lane] = pixel;
      ranks[call.lane] = rank;
    }
    const top = track.top + 4 + Math.min(call.lane, track.lanes - 1) * LANE;
    const colour = tone === "good" ? colours.accent : colours[tone];
    g.globalAlpha = off ? 0.18 : call.branch === "abandoned" ? 0.45 : 1;
    bar(g, from, to, top, LANE - 2, colour, 2);
    if (call.end === null && to - from < 3) bar(g, from, from + 6, top + 3, LANE - 8, colour, 0);
    const seen = Math.max(from, label);
    if (to - seen > 38 && !off) {
      g.fillStyle = colours["on-accent"];
      g.font = `10px ${colours.font}`;
      g.fillText(fit(g, escapeText(barName(call.tool)), to - seen - 6), seen + 4, top + LANE / 2 - 0.5);
      g.font = `11px ${colours.font}`;
    }
    g.globalAlpha = 1;
  }
}

const barName = (tool) => tool.replace(/^mcp__/, "").replaceAll("__", " › "); // underscores would be below the bar

function drawOverlay(canvas, { tracks, x, label, width, ratio, visible, range, selected }) {
  const g = prepare(canvas, width, tracks.height, ratio);
  g.beginPath();
  g.rect(label - 2, 0, width - label + 2, tracks.height);
  g.clip();
  if (visible) {
    const [from, to] = [x(visible[0]), x(visible[1])];
    g.fillStyle = token("accent");
    g.globalAlpha = 0.07;
    g.fillRect(from, AXIS, Math.max(2, to - from), tracks.height);
    g.globalAlpha = 1;
    g.fillRect(from, AXIS - 2, Math.max(3, to - from), 2);
  }
  if (range) {
    const [from, to] = [x(range[0]), x(range[1])];
    g.fillStyle = token("warn");
    g.globalAlpha = 0.12;
    g.fillRect(from, 0, to - from, tracks.height);
    g.globalAlpha = 1;
    g.fillRect(from - 1, 0, 1.5, tracks.height);
    g.fillRect(to, 0, 1.5, tracks.height);
  }
  if (selected && selected.at !== null && selected.lane !== null) {
    const track = tracks.find(({ kind, agent }) => kind === "agent" && agent.n === selected.thread);
    if (track) {
      const from = x(selected.at);
      g.strokeStyle = token("text");
      g.lineWidth = 2;
      g.strokeRect(
        from - 1.5,
        track.top + 2.5 + Math.min(selected.lane, track.lanes - 1) * LANE,
        Math.max(4, x(selected.end ?? selected.at) - from) + 3,
        LANE + 1,
      );
    }
  }
}

function drawMinimap(canvas, { model, marks, scale, label, width, ratio }) {
  const g = prepare(canvas, width, MINIMAP, ratio);
  const room = Math.max(1, width - label);
  const bins = Math.max(1, Math.floor(room / 2));
  const [all, unsuccessful] = [new Uint32Array(bins), new Uint32Array(bins)];
  for (const call of model.calls) {
    if (call.at === null) continue;
    const bin = Math.min(bins - 1, Math.floor(scale.place(call.at) * bins));
    all[bin] += 1;
    if (isUnsuccessful(call)) unsuccessful[bin] += 1;
  }
  const most = all.reduce((a, b) => Math.max(a, b), 1);
  const height = (count) => (count ? 3 + Math.sqrt(count / most) * (MINIMAP - 9) : 0);
  const [usual, bad] = [token("line-strong"), token("bad")];
  for (let n = 0; n < bins; n += 1) {
    if (!all[n]) continue;
    g.fillStyle = usual;
    g.fillRect(label + (n / bins) * room, MINIMAP - 3 - height(all[n]), 1.6, height(all[n]));
    if (!unsuccessful[n]) continue;
    g.fillStyle = bad;
    g.fillRect(label + (n / bins) * room, MINIMAP - 3 - height(unsuccessful[n]), 1.6, height(unsuccessful[n]));
  }
  for (const { at, mark } of marks) {
    g.fillStyle = token(mark === "compacted" ? "odd" : "info");
    g.fillRect(label + scale.place(at) * room, 2, 1.5, MINIMAP - 4);
  }
  g.fillStyle = token("faint");
  g.fillText("all", 6, MINIMAP / 2);
}

function drawWindow(canvas, { scale, label, width, ratio, view, visible }) {
  const g = prepare(canvas, width, MINIMAP, ratio);
  const room = Math.max(1, width - label);
  if (visible) {
    const [from, to] = visible.map((ms) => label + scale.place(ms) * room);
    g.fillStyle = token("accent");
    g.fillRect(from, MINIMAP - 2, Math.max(3, to - from), 2);
  }
  g.fillStyle = token("bg");
  g.globalAlpha = 0.72;
  g.fillRect(label, 0, view[0] * room, MINIMAP);
  g.fillRect(label + view[1] * room, 0, (1 - view[1]) * room, MINIMAP);
  g.globalAlpha = 1;
  g.strokeStyle = token("line-strong");
  g.strokeRect(label + view[0] * room + 0.5, 0.5, Math.max(2, (view[1] - view[0]) * room - 1), MINIMAP - 1);
}

function find(tracks, px, py, { label, x }) {
  const track = tracks.find(({ top, height }) => py >= top && py < top + height);
  if (!track) return null;
  if (px < label) return track.kind === "agent" && track.agent.n ? { toggle: track.agent.n, agent: track.agent } : null;
  const within = (start, end) => px >= x(start) - 2 && px <= Math.max(x(end), x(start) + 2) + 2;
  if (track.kind === "phase") {
    const found = track.intervals.find(({ start, end }) => within(start, end));
    return found ? { call: found.call, interval: found } : null;
  }
  if (track.kind === "background") {
    const call = track.background.find(({ at, until }) => within(at, until));
    return call ? { call } : null;
  }
  if (track.kind !== "agent" || track.closed) return null;
  const lane = Math.floor((py - track.top - 4) / LANE);
  const near = track.calls.filter(
    (call) => Math.min(call.lane, track.lanes - 1) === lane && within(call.at, call.end ?? call.at),
  );
  const best = near.find(isUnsuccessful) ?? near[0];
  return best ? { call: best } : null;
}

function describe({ call, interval, agent, toggle }, model) {
  if (toggle !== undefined)
    return [`${agent.role ?? "subagent"} ${agent.id ?? ""}`, `${number(agent.calls)} calls, click to open or close`];
  const waits = interval ? `${interval.phase} ${duration(interval.end - interval.start)}` : null;
  const request = call.request;
  return [
    `${call.tool} · ${words(call.state)}${call.error_kind ? ` (${kindName(call.error_kind)})` : ""}`,
    [dateTime(new Date(model.base + call.at)), duration(call.duration_ms), waits].filter(Boolean).join(" · "),
    call.target,
    request ? `context ${short(request.context)} tokens, ${short(request.output_tokens)} out` : null,
  ];
}

function bar(g, from, to, top, height, colour, radius) {
  g.fillStyle = colour;
  const wide = Math.max(1, to - from);
  if (radius && wide > 4) {
    g.beginPath();
    g.roundRect(from, top, wide, height, radius);
    g.fill();
  } else {
    g.fillRect(from, top, wide, height);
  }
}

function line(g, x1, y1, x2, y2) {
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(x1, y1);
  g.lineTo(x2, y2);
  g.stroke();
}

function fit(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (g.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}
