// uPlot as a component: <Chart data options height />. `options` as in uPlot, without width and height, or a function
// of uPlot that returns them. Its style sheet is vendor/uplot.css.
import { html, useEffect, useRef, useState } from "../lib.js";

export function Chart({ data, options, height = 180, label }) {
  const box = useRef(null);
  useEffect(() => {
    let chart = null;
    let gone = false;
    let observer = null;
    import("../vendor/uplot.js").then(({ default: UPlot }) => {
      if (gone || !box.current) return;
      chart = new UPlot(
        {
          ...(typeof options === "function" ? options(UPlot) : options),
          width: box.current.clientWidth || 600,
          height,
        },
        data,
        box.current,
      );
      observer = new ResizeObserver(() => box.current && chart.setSize({ width: box.current.clientWidth, height }));
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

// A hook: a value that changes with the theme, for options that contain colours.
export function useTheme() {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const listener = () => setCount((n) => n + 1);
    const observer = new MutationObserver(listener);
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", listener);
    return () => {
      observer.disconnect();
      scheme.removeEventListener("change", listener);
    };
  }, []);
  return count;
}
