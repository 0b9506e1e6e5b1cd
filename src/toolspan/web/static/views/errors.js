// Errors: failed calls in groups by cause. Query: sort, and the filters of `toolspan errors`.
import { html, useEffect } from "../lib.js";
import { useApi } from "../api.js";
import { Table } from "../components/table.js";
import { Answer, Empty } from "../components/messages.js";
import { ago, firstLine, number, parseTime, plural, words } from "../components/format.js";

const COLUMNS = [
  { key: "count", title: "Count", width: "5.5rem", align: "right", cell: (row) => html`<b class="tone-bad">${number(row.count)}</b>`, value: (row) => row.count },
  { key: "cause", title: "Cause", width: "16rem", cell: (row) => html`<b>${row.program || row.tool}</b> ${words(row.kind)}`, value: (row) => row.program || row.tool },
  { key: "text", title: "Message", hide: "phone", cell: (row) => html`<span class="mono">${firstLine(row.text || row.example.message)}</span>`, value: (row) => row.text },
  { key: "sessions", title: "Sessions", width: "6rem", align: "right", cell: (row) => number(row.sessions), value: (row) => row.sessions },
  { key: "recovered", title: "Recovered", width: "7rem", align: "right", hide: "narrow", cell: (row) => number(row.recovered), value: (row) => row.recovered },
  { key: "last", title: "Last", width: "7rem", hide: "phone", newest: true, cell: (row) => ago(parseTime(row.last)), value: (row) => row.last },
];

export default function Errors({ query, setQuery, setTitle }) {
  const answer = useApi("errors", {}, { live: true });
  useEffect(() => setTitle("Errors"), []);
  return html`<${Answer} of=${answer} what="errors">${(groups) => html`<section class="page fill errors">
    <div class="head"><h1>Errors</h1><p class="summary" data-test="count">${plural(groups.length, "cause")}</p></div>
    ${groups.length ? html`<${Table} label="Errors" rows=${groups} columns=${COLUMNS} sort=${query.sort ?? "-count"} onSort=${(sort) => setQuery({ sort })} rowKey=${(row) => row.id ?? row.command} />` : html`<${Empty}>Nothing failed.<//>`}
  </section>`}<//>`;
}
