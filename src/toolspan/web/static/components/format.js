// Values as text. Everything returns a string; nothing returns markup.

import { timeZone } from "./zone.js";

const numberFormat = new Intl.NumberFormat("en");
const costFormat = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const dayFormat = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit", timeZone });
const clockFormat = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZone,
});

export const number = (value) => (value === null || value === undefined ? "" : numberFormat.format(value));

// 17.5M, 3.2k, 950
export function short(value) {
  if (value === null || value === undefined) return "";
  for (const [size, unit] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (value >= size) return `${(value / size).toFixed(value / size >= 100 ? 0 : 1)}${unit}`;
  }
  return String(value);
}

export const bytes = (value) => (value >= 1000 ? `${short(value)}B` : `${value} B`);

export const cost = (usd) => (usd === null || usd === undefined ? "" : `$${costFormat.format(usd)}`);

// Milliseconds as 320 ms, 4.2 s, 3m 05s, 2h 10m, 3d 4h, as `format_duration` of archive/words.py writes them
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m ${String(seconds % 60).padStart(2, "0")}s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}h ${String(minutes % 60).padStart(2, "0")}m`;
  return `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

// Times of the API are ISO 8601; people read them in the zone of the page.
export const parseTime = (text) => (text ? new Date(text) : null);
export const day = (date) => (date ? dayFormat.format(date) : "");
export const clock = (date) => (date ? clockFormat.format(date) : "");
export const dateTime = (date) => (date ? `${dayFormat.format(date)} ${clockFormat.format(date)}` : "");

// "3 minutes ago" for the last two days, then the date
export function ago(date, now = Date.now()) {
  if (!date) return "";
  const seconds = (now - date) / 1000;
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  return day(date);
}

export const shortId = (id) => (id ?? "").replace(/^(call_|toolu_(bdrk_)?(01)?)/, "").slice(0, 8);
export const baseName = (path) => (path ?? "").split(/[/\\]/).filter(Boolean).pop() ?? "";
export const toolName = (tool) => (tool && tool !== "?" ? tool : "Unknown tool");
export const words = (name) => (name ?? "").replaceAll("_", " ");
const cut = (line, length) => (line.length > length ? `${line.slice(0, length - 1)}…` : line);
export const firstLine = (text, length = 240) => cut((text ?? "").trim().split("\n", 1)[0], length);
// A command on one line: the first of its lines is often only a `cd`.
export const oneLine = (text, length = 240) => cut((text ?? "").trim().replace(/\s*\n\s*/g, " ⏎ "), length);
export const plural = (count, noun) =>
  `${number(count)} ${noun}${count === 1 ? "" : /(ch|s)$/.test(noun) ? "es" : "s"}`;

// A share in percent; one that is small but not zero is not shown as zero, and one that is not all not as all.
export function percent(part, whole) {
  const share = whole ? (part / whole) * 100 : 0;
  if (share > 0 && share < 0.5) return "<1%";
  return share >= 99.5 && share < 100 ? ">99%" : `${Math.round(share)}%`;
}

// The change to an earlier value in percent.
export function change(value, before) {
  if (value === undefined || value === null || !before) return "";
  const share = Math.round(((value - before) / before) * 100);
  return share === 0 ? "as before" : `${share > 0 ? "+" : "−"}${Math.abs(share)}%`;
}

// A colour of the current theme, for drawings on a canvas.
export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
