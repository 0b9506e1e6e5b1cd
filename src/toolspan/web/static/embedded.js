// The data of an exported page, which contains the answers of the server. The pages of `toolspan ui` have none.
import { WORDS } from "./components/words.js";

const parse = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "null");

export const embedded = parse("session-data"); // { id, notices, timeline }, or null

let bodies = null; // perf: parsed when the first call is opened
const readBodies = () => (bodies ??= parse("bodies"));

// The answer to a question, or undefined if the page does not contain it.
export const embeddedAnswer = (path) => (path.endsWith("/timeline") ? embedded.timeline : undefined);

// The answer of /api/call/ID for a row of the timeline.
export function embeddedCall(row, model) {
  const { texts, calls, advice } = readBodies();
  const { input, result, diffs, ...body } = calls[row.n];
  return {
    ...body,
    call: {
      ...row,
      client: model.session.client,
      agent: model.agents[row.thread].id,
      error_text: row.message,
      evidence: body.evidence,
      requested: row.start === null ? null : new Date(model.base + row.start).toISOString(),
    },
    meaning: WORDS.meanings[row.state],
    advice: advice[row.error_kind] ?? null,
    input: input === null ? null : decodeInput(input, texts),
    result: result === null ? null : { text: texts[result], summary: "", structured: null, structured_type: null },
    diff: diffs.map((n) => texts[n]).join("\n") || null,
    recovery: null,
    around: null,
  };
}

// A field is the number of a text, or that number in a list if the text is JSON, which may have been shortened.
function decodeInput(input, texts) {
  const value = (field) => {
    if (!Array.isArray(field)) return texts[field];
    try {
      return JSON.parse(texts[field[0]]);
    } catch {
      return texts[field[0]];
    }
  };
  return Array.isArray(input) || typeof input === "number"
    ? value(input)
    : Object.fromEntries(Object.entries(input).map(([name, field]) => [name, value(field)]));
}

// All that the page contains of a call, for the search.
export function embeddedText(row) {
  if (!embedded) return "";
  const { texts, calls } = readBodies();
  const { input, result, diffs, events } = calls[row.n];
  const fields =
    input === null
      ? []
      : [input].flatMap((one) => (typeof one === "object" && !Array.isArray(one) ? Object.values(one) : one)).flat();
  return [...fields, result, ...diffs]
    .filter((n) => n !== null)
    .map((n) => texts[n])
    .concat(events.map(({ text }) => text ?? ""))
    .join("\n");
}
