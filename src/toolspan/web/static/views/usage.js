// Usage: tokens and cost. Query: by (day, model, project, …), sort.
import { html, useEffect, useMemo } from "../lib.js";
import { useApi } from "../api.js";
import { Table } from "../components/table.js";
import { Answer } from "../components/messages.js";
import { cost, number } from "../components/format.js";

const GROUPINGS = ["day", "week", "month", "model", "project", "session", "agent"];
const NUMBERS = { requests: "Requests", input_tokens: "Input", output_tokens: "Output", cache_creation_input_tokens: "Cache write", cache_read_input_tokens: "Cache read" };

export default function Usage({ query, setQuery, setTitle }) {
  const by = query.by ?? "day";
  const answer = useApi("usage", { by }, { live: true });
  useEffect(() => setTitle("Usage"), []);
  const columns = useMemo(() => [
    { key: "name", title: by, cell: (row) => row.period ?? row[by], value: (row) => row.period ?? row[by] },
    ...Object.entries(NUMBERS).map(([key, title]) => ({ key, title, width: "8rem", align: "right", hide: key.startsWith("cache") ? "phone" : undefined, cell: (row) => number(row[key]), value: (row) => row[key] })),
    { key: "cost", title: "Cost", width: "7rem", align: "right", cell: (row) => cost(row.cost_usd), value: (row) => row.cost_usd },
  ], [by]);
  return html`<${Answer} of=${answer} what="usage">${(rows) => html`<section class="page fill usage">
    <div class="head"><h1>Usage</h1><label>by <select value=${by} onChange=${(event) => setQuery({ by: event.target.value })}>${GROUPINGS.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label></div>
    <${Table} label="Usage" rows=${rows} columns=${columns} sort=${query.sort} onSort=${(sort) => setQuery({ sort })} rowKey=${(row) => row.period ?? row[by]} />
  </section>`}<//>`;
}
