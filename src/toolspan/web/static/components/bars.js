// Small drawings made of links and a few nodes: bars over time, sparklines, shares.
import { html } from "../lib.js";

// Stacked bars; each bar is a link. bars: [{ key, title, href, parts: [{ value, tone }] }]
export function Bars({ bars, format, label, labels }) {
  const totals = bars.map(({ parts }) => parts.reduce((sum, { value }) => sum + value, 0));
  const top = totals.reduce((one, other) => Math.max(one, other), 0) || 1;
  return html`<div class="bars" role="group" aria-label=${label}>
    <div class="scale" aria-hidden="true"><span>${format(top)}</span><span>${format(top / 2)}</span><span>${format(0)}
      </span></div>
    <div class="plot">${bars.map(
      (bar, n) =>
        html`<a key=${bar.key} class=${totals[n] ? "column" : "column none"}
            href=${totals[n] ? bar.href : undefined} title=${bar.title} aria-label=${bar.title} role=${
              totals[n] ? undefined : "img"
            }>
      ${bar.parts.map(({ value, tone }) =>
        value
          ? html`<span class="part tone-${tone}"
              style=${{ height: `${Math.max(1.5, (value / top) * 100)}%` }}></span>`
          : null,
      )}</a>`,
    )}</div>
    ${
      labels
        ? html`<div class=${labels.length === bars.length ? "labels all" : "labels"} aria-hidden="true">
        ${labels.map((text) => html`<span>${text}</span>`)}</div>`
        : null
    }
  </div>`;
}

// One path of thin bars, e.g. failures per day.
export function Sparkline({ values, label, tone = "bad", width = 120, height = 22 }) {
  const top = values.reduce((one, other) => Math.max(one, other), 0) || 1;
  const step = width / values.length;
  const path = values
    .map((value, n) =>
      value
        ? `M${(n * step).toFixed(1)} ${height}v-${Math.max(1.5, (value / top) * (height - 1)).toFixed(
            1,
          )}h${Math.max(1, step - 1).toFixed(1)}V${height}z`
        : "",
    )
    .join("");
  return html`<svg class="sparkline tone-${tone}" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`}
      role="img" aria-label=${label}><path d=${`M0 ${height - 0.5}H${width}`} class="base" /><path d=${path} /></svg>`;
}

// A share of a whole as a thin bar behind a number.
export const Share = ({ value, of, tone = "accent" }) =>
  html`<span class="share" aria-hidden="true"><span class="tone-${tone}"
      style=${{ width: `${of ? Math.max(0, Math.min(100, (value / of) * 100)) : 0}%` }}></span></span>`;
