// uPlot as a component: <Chart data options height />. `options` as in uPlot, without width and height.
import { html, useEffect, useRef } from "../lib.js";

export function Chart({ data, options, height = 180, label }) {
  const box = useRef(null);
  useEffect(() => {
    let chart = null;
    let gone = false;
    let observer = null;
    import("../vendor/uplot.js").then(({ default: UPlot }) => {
      if (gone) return;
      chart = new UPlot({ ...options, width: box.current.clientWidth || 600, height }, data, box.current);
      observer = new ResizeObserver(() => chart.setSize({ width: box.current.clientWidth, height }));
      observer.observe(box.current);
    });
    return () => {
      gone = true;
      observer?.disconnect();
      chart?.destroy();
    };
  }, [data, options, height]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${label}></div>`;
}

// Colours of the current theme, for canvas drawings.
export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
