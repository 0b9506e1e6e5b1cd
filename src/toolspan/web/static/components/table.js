// A table that draws only the rows in view, so that 50,000 rows scroll like 50.
//
// <Table rows columns sort onSort rowKey rowHref label active onActive />
//   columns: [{ key, title, cell(row), value(row)?, align?: "right", width?: "8rem",
//               hide?: "phone" | "narrow" | "always" }]
//            `value` makes a column sortable; without `width`, a column shares the rest.
//   sort:    "key" or "-key" (the largest first), usually from the query of the URL
//   rowHref: address of a row; Enter and a click open it
//   phone:   phone(row) draws a row in two lines where columns have no room (at most 720 px)
// The rows are sorted here (sortRows), so that sorting needs no request.
import { Component, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { useKeys } from "../keys.js";
import { navigate, rememberInHistory, rememberedInHistory } from "../router.js";

const STEP = 4; // perf: the drawn window moves by this many rows, so that most frames of a scroll draw nothing
const OVERSCAN = 3 * STEP;
const HEAD = 33;
const DRAW_REST_MS = 60;

export function sortRows(rows, columns, sort) {
  const descending = sort?.startsWith("-");
  const column = columns.find(({ key }) => key === (descending ? sort.slice(1) : sort));
  if (!column?.value) return rows;
  const keyed = rows.map((row) => [column.value(row), row]);
  const present = keyed.filter(([value]) => value !== null && value !== undefined && value !== "");
  const missing = keyed.filter(([value]) => value === null || value === undefined || value === "");
  const way = descending ? -1 : 1;
  present.sort(([one], [other]) => (one < other ? -way : one > other ? way : 0));
  return [...present, ...missing].map(([, row]) => row);
}

const WIDTHS = { phone: matchMedia("(max-width: 720px)"), narrow: matchMedia("(max-width: 1100px)") };

function useWidth() {
  const read = () => (WIDTHS.phone.matches ? "phone" : WIDTHS.narrow.matches ? "narrow" : "wide");
  const [width, setWidth] = useState(read);
  useEffect(() => {
    const listener = () => setWidth(read());
    for (const query of Object.values(WIDTHS)) query.addEventListener("change", listener);
    return () => {
      for (const query of Object.values(WIDTHS)) query.removeEventListener("change", listener);
    };
  }, []);
  return width;
}

const HIDDEN = { wide: ["always"], narrow: ["always", "narrow"], phone: ["always", "narrow", "phone"] };

export function Table({
  rows,
  columns: allColumns,
  sort,
  onSort,
  rowKey,
  rowHref,
  rowClass,
  label,
  rowHeight: wideHeight = 34,
  active,
  onActive,
  phone,
}) {
  const box = useRef(null);
  const width = useWidth();
  const small = width === "phone" && Boolean(phone);
  const rowHeight = small ? 56 : wideHeight;
  const columns = useMemo(
    () => (small ? [{ key: "row", cell: phone }] : allColumns.filter(({ hide }) => !HIDDEN[width].includes(hide))),
    [width, small, allColumns],
  );
  const [range, setRange] = useState([0, 40]);
  const view = useRef({ top: 0, height: 0 });
  const slotCount = useRef(0);
  const [cursor, setCursor] = useState(-1);
  const sorted = useMemo(() => sortRows(rows, allColumns, sort), [rows, allColumns, sort]);
  const current = active === undefined ? cursor : sorted.findIndex((row) => rowKey(row) === active);

  useLayoutEffect(() => {
    const element = box.current;
    let height = element.clientHeight;
    let frame = 0;
    const measure = () => {
      frame = 0;
      view.current = { top: element.scrollTop, height };
      const first = Math.max(0, Math.floor(element.scrollTop / rowHeight / STEP) * STEP - OVERSCAN);
      const last = Math.ceil((element.scrollTop + height) / rowHeight / STEP) * STEP + OVERSCAN;
      setRange((old) => {
        if (old[0] === first && old[1] === last) return old;
        if (element.querySelector("tbody").contains(document.activeElement)) element.focus({ preventScroll: true });
        return [first, last];
      });
    };
    const later = () => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    element.addEventListener("scroll", later, { passive: true });
    const observer = new ResizeObserver(([entry]) => {
      height = entry.contentRect.height; // perf: no layout is read while scrolling
      later();
    });
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", later);
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [rowHeight]);
  const isFirst = useRef(true);
  useEffect(() => {
    if (active === undefined && !isFirst.current) setCursor(-1);
    isFirst.current = false;
  }, [sort]);
  // the row that was left when the user went to another page
  const remembered = useRef(rememberedInHistory(`row ${label}`));
  useEffect(() => {
    if (remembered.current === undefined || !sorted.length) return;
    const index = sorted.findIndex((row) => rowKey(row) === remembered.current);
    if (index >= 0) setCursor(index);
    remembered.current = undefined;
  }, [sorted]);
  const isMoved = useRef(false);
  useLayoutEffect(() => {
    // keys move the focus, so that a screen reader says the row
    if (isMoved.current) box.current.querySelector("tbody tr.current")?.focus({ preventScroll: true });
    isMoved.current = false;
  });

  const openRow = (row) => {
    // some rows of a list have no address
    const address = rowHref?.(row);
    if (address) navigate(address);
  };
  const move = (step) => {
    if (!sorted.length) return;
    const next = Math.max(0, Math.min(sorted.length - 1, current + step));
    setCursor(next);
    isMoved.current = true;
    rememberInHistory(`row ${label}`, rowKey(sorted[next]));
    onActive?.(rowKey(sorted[next]), sorted[next]);
    const element = box.current;
    const top = next * rowHeight;
    const head = element.querySelector("thead").offsetHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + element.clientHeight - head)
      element.scrollTop = top + rowHeight - element.clientHeight + head;
  };
  useKeys({
    j: { label: "next row", run: () => move(1) },
    k: { label: "previous row", run: () => move(-1) },
    ArrowDown: { label: "next row", run: () => move(1) },
    ArrowUp: { label: "previous row", run: () => move(-1) },
    Enter: { label: "open the row", run: () => current >= 0 && openRow(sorted[current]) },
  });

  const first = Math.min(range[0], Math.max(0, sorted.length - 1));
  const last = Math.min(sorted.length, range[1]);
  const open = (event, row) => {
    rememberInHistory(`row ${label}`, rowKey(row));
    if (event.target.closest("a, button, input") || getSelection()?.toString()) return;
    openRow(row);
  };
  // perf: rows that leave the window lend their nodes to those that enter it.
  const size = Math.max(range[1] - range[0], slotCount.current);
  slotCount.current = size;
  const slots = [];
  for (let index = first; index < last; index += 1) slots[index % size] = index;
  // perf: when a filter or an order changes the rows, those above and below the view are drawn a moment later.
  const drawn = useRef(sorted);
  const [, redraw] = useState(0);
  const isNew = drawn.current !== sorted && view.current.top + view.current.height <= sorted.length * rowHeight;
  const isHeld = (index) =>
    isNew &&
    ((index + 2) * rowHeight < view.current.top || (index - 1) * rowHeight > view.current.top + view.current.height);
  useEffect(() => {
    drawn.current = sorted;
    if (!isNew) return undefined;
    const timer = setTimeout(() => redraw((n) => n + 1), DRAW_REST_MS);
    return () => clearTimeout(timer);
  }, [sorted]);
  const tracks = columns.map((column) => column.width ?? "minmax(0, 1fr)").join(" ");

  return html`<div class="table-box" ref=${box} tabindex="0" role="region" aria-label=${label}
      style=${{ maxHeight: `${HEAD + sorted.length * rowHeight + 2}px` }}>
    <table role="table" class=${`rows${small ? " small" : ""}`} aria-rowcount=${sorted.length + 1}
      style=${{ "--row": `${rowHeight}px`, "--tracks": tracks }}>
      <thead role="rowgroup"><tr role="row" aria-rowindex="1">
        ${
          small
            ? html`<${SmallHead} columns=${allColumns} sort=${sort} onSort=${onSort} label=${label} />`
            : columns.map(
                (column) =>
                  html`<${Head} key=${column.key} column=${column} sort=${sort} onSort=${onSort}
              className=${className(column)} />`,
              )
        }</tr></thead>
      <tbody role="rowgroup" style=${{ height: `${sorted.length * rowHeight}px` }}>
        ${slots.map((index, slot) => {
          const row = sorted[index];
          return html`<${Row} key=${slot} row=${row} columns=${columns} index=${index} top=${index * rowHeight}
          held=${isHeld(index)} current=${index === current}
            className=${`${rowHref ? "link " : ""}${rowClass?.(row) ?? ""}`} onClick=${rowHref ? open : undefined} />`;
        })}
      </tbody>
    </table>
  </div>`;
}

const className = (column) => (column.align === "right" ? "right" : undefined);

// perf: a row has a fixed place and size, so that only rows that come into view are laid out and painted.
class Row extends Component {
  shouldComponentUpdate(next) {
    if (next.held) return false;
    const shown = this.shown; // not the last props, which may have been held
    return ["row", "columns", "top", "current", "className"].some((name) => next[name] !== shown[name]);
  }

  render(props) {
    const { row, columns, index, top, current, className: names, onClick } = (this.shown = props);
    return html`<tr role="row" tabindex="-1" aria-current=${current ? "true" : undefined} aria-rowindex=${index + 2}
        class=${`${current ? "current " : ""}${names}`} style=${{ transform: `translateY(${top}px)` }} onClick=${
          onClick && ((event) => onClick(event, row))
        }>
      ${columns.map(
        (column) =>
          html`<td role="cell" key=${column.key} class=${className(column)}>${column.cell(row)}
            </td>`,
      )}</tr>`;
  }
}

function Head({ column, sort, onSort, className }) {
  if (!column.value || !onSort)
    return html`<th role="columnheader" scope="col" class=${className} title=${column.hint}>
    ${column.title}</th>`;
  const direction = sort === column.key ? "ascending" : sort === `-${column.key}` ? "descending" : "none";
  const next =
    direction === "descending"
      ? column.key
      : direction === "ascending"
        ? `-${column.key}`
        : column.align === "right" || column.newest
          ? `-${column.key}`
          : column.key;
  return html`<th role="columnheader" scope="col" class=${className} title=${column.hint} aria-sort=${direction}>
    <button type="button" onClick=${() => onSort(next)}>${column.title}<span class="arrow" aria-hidden="true">
      ${{ ascending: "▲", descending: "▼", none: "" }[direction]}</span></button>
  </th>`;
}

function SmallHead({ columns, sort, onSort, label }) {
  const choices = columns.filter(({ value }) => value);
  if (!onSort || !choices.length) return html`<th role="columnheader" scope="col">${label}</th>`;
  const options = choices.flatMap(({ key, title }) => [
    [key, `${title} ▲`],
    [`-${key}`, `${title} ▼`],
  ]);
  return html`<th role="columnheader" scope="col">
    <label>Sort by <select value=${sort ?? ""} onChange=${(event) => onSort(event.target.value || null)}>
    <option value="">as listed</option>${options.map(
      ([key, text]) => html`<option key=${key} value=${key}>${text}</option>`,
    )}</select></label></th>`;
}
