// A list that draws only the items in view. Items may have any height: the ones that are drawn are measured.
//
// <VirtualList items keyOf heightOf render label control onVisible />
//   heightOf(item)  the height before it is drawn
//   control         a ref that gets { scrollTo(index, align), isAtEnd() }
//   onVisible       called with the indexes of the first and last visible item
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef } from "../lib.js";

const OVERSCAN = 8;

// Heights with sums in logarithmic time (a Fenwick tree).
class Heights {
  constructor(sizes) {
    this.sizes = sizes;
    this.count = sizes.length;
    this.tree = new Float64Array(this.count + 1);
    for (let n = 1; n <= this.count; n += 1) {
      this.tree[n] += sizes[n - 1];
      const above = n + (n & -n);
      if (above <= this.count) this.tree[above] += this.tree[n];
    }
  }

  set(index, size) {
    const change = size - this.sizes[index];
    this.sizes[index] = size;
    for (let n = index + 1; n <= this.count; n += n & -n) this.tree[n] += change;
    return change;
  }

  // The sum of the first `count` heights.
  before(count) {
    let sum = 0;
    for (let n = count; n > 0; n -= n & -n) sum += this.tree[n];
    return sum;
  }

  // The index of the item at an offset.
  at(offset) {
    let [index, rest] = [0, offset];
    for (let step = 1 << Math.floor(Math.log2(this.count || 1)); step > 0; step >>= 1) {
      if (index + step <= this.count && this.tree[index + step] <= rest) {
        index += step;
        rest -= this.tree[index];
      }
    }
    return Math.min(index, this.count - 1);
  }
}

export function VirtualList({ items, keyOf, heightOf, render, label, control, onVisible }) {
  const box = useRef(null);
  const inner = useRef(null);
  const view = useRef({ top: 0, height: 600 });
  const measured = useRef(new Map());
  const [, redraw] = useReducer((n) => n + 1, 0);
  useMemo(() => measured.current.clear(), [heightOf]);
  const heights = useMemo(() => {
    const sizes = new Float64Array(items.length); // perf: Float64Array.from reads the items through an iterator
    for (let n = 0; n < items.length; n += 1)
      sizes[n] = (measured.current.size && measured.current.get(keyOf(items[n]))) || heightOf(items[n]);
    return new Heights(sizes);
  }, [items, heightOf]);

  useLayoutEffect(() => {
    const element = box.current;
    let frame = 0;
    const look = () => {
      frame = 0;
      view.current = { top: element.scrollTop, height: element.clientHeight };
      redraw();
    };
    const later = () => {
      frame ||= requestAnimationFrame(look);
    };
    look();
    element.addEventListener("scroll", later, { passive: true });
    const observer = new ResizeObserver(later);
    observer.observe(element);
    observer.observe(inner.current);
    return () => {
      element.removeEventListener("scroll", later);
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, []);

  if (control) {
    control.current = {
      isAtEnd: () => {
        const { scrollTop, clientHeight, scrollHeight } = box.current ?? {}; // null while no list is shown
        return !box.current || scrollTop + clientHeight >= scrollHeight - 4;
      },
      scrollTo(index, align = "nearest") {
        if (index < 0 || index >= items.length) return;
        const [top, size, { clientHeight, scrollTop }] = [heights.before(index), heights.sizes[index], box.current];
        if (align === "nearest" && top >= scrollTop && top + size <= scrollTop + clientHeight) return;
        if (align === "center") box.current.scrollTop = Math.max(0, top - (clientHeight - size) / 3);
        else box.current.scrollTop = top < scrollTop ? top : top + size - clientHeight;
        view.current = { ...view.current, top: box.current.scrollTop };
        redraw();
      },
    };
  }

  const total = heights.before(items.length);
  const top = Math.max(0, Math.min(view.current.top, total - view.current.height));
  const firstSeen = items.length ? heights.at(top) : 0;
  const lastSeen = items.length ? heights.at(Math.max(0, top + view.current.height - 1)) : -1;
  const first = Math.max(0, firstSeen - OVERSCAN);
  const last = Math.min(items.length - 1, lastSeen + OVERSCAN);
  useEffect(() => {
    onVisible?.(firstSeen, lastSeen);
  }, [firstSeen, lastSeen, items]);

  // Measure what was drawn. If items above the view have grown, keep what is in view in its place.
  useLayoutEffect(() => {
    let [changed, shift] = [false, 0];
    for (const element of inner.current.children) {
      const index = Number(element.dataset.index);
      const size = element.getBoundingClientRect().height;
      if (index >= items.length || !size || Math.abs(size - heights.sizes[index]) < 0.5) continue;
      measured.current.set(keyOf(items[index]), size);
      const change = heights.set(index, size);
      if (index < firstSeen) shift += change;
      changed = true;
    }
    if (shift) box.current.scrollTop += shift;
    if (changed) {
      view.current = { ...view.current, top: box.current.scrollTop };
      redraw();
    }
  });

  const below = Math.max(0, total - heights.before(last + 1));
  return html`<div class="list-box" ref=${box} tabindex="0" role="region" aria-label=${label}>
    <div class="list" role="list" ref=${inner} style=${{
      paddingTop: `${heights.before(first)}px`,
      paddingBottom: `${below}px`,
    }}>
      ${items.slice(first, last + 1).map(
        (item, n) =>
          html`<div role="listitem" key=${keyOf(item)} data-index=${first + n} aria-setsize=${items.length}
              aria-posinset=${first + n + 1}>${render(item, first + n)}</div>`,
      )}
    </div>
  </div>`;
}
