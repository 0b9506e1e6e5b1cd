// One call in detail: input and result by the kind of its tool. Everything here comes from a transcript and is shown
// as text, or through rich.js.
import { html, useState } from "../lib.js";
import { Diff, pairDiff } from "./diff.js";
import { number, plural } from "./format.js";
import { Ansi, Code, Markdown } from "./rich.js";
import { useRoute } from "../router.js";

const LANGUAGES = {
  py: "python",
  pyi: "python",
  js: "javascript",
  mjs: "javascript",
  cjs: "javascript",
  jsx: "javascript",
  ts: "typescript",
  tsx: "typescript",
  rs: "rust",
  go: "go",
  java: "java",
  c: "c",
  h: "c",
  cc: "cpp",
  cpp: "cpp",
  hpp: "cpp",
  cs: "csharp",
  rb: "ruby",
  php: "php",
  sh: "bash",
  bash: "bash",
  zsh: "bash",
  json: "json",
  jsonl: "json",
  yml: "yaml",
  yaml: "yaml",
  toml: "ini",
  ini: "ini",
  css: "css",
  scss: "scss",
  html: "xml",
  xml: "xml",
  svg: "xml",
  md: "markdown",
  sql: "sql",
  lua: "lua",
  kt: "kotlin",
  swift: "swift",
  diff: "diff",
  patch: "diff",
  mk: "makefile",
  pl: "perl",
  r: "r",
};
const MOST_CHARS = 100_000;
const IMAGE = /^image\/(png|jpeg|gif|webp)$/;

const text = (value) => (typeof value === "string" ? value : "");
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const languageOf = (path) => LANGUAGES[text(path).split(".").pop().toLowerCase()] ?? null;
export const pathOf = (input) =>
  text(input.file_path ?? input.path ?? input.notebook_path ?? input.absolute_path ?? input.filePath);
const commandOf = (input) => {
  const command = input.command ?? input.cmd;
  if (Array.isArray(command))
    return command.length === 3 && text(command[0]).endsWith("sh") ? text(command[2]) : command.map(String).join(" ");
  return text(command);
};

// The shell command of a call, or "".
export const shellCommand = ({ call, input }) => (call.kind === "shell" && isObject(input) ? commandOf(input) : "");

// Only web addresses become links.
export const SafeLink = ({ url }) =>
  /^https?:\/\/[^\s]+$/.test(url)
    ? html`<a href=${url} target="_blank" rel="noopener noreferrer">${url}</a>`
    : html`<span class="mono">${url}</span>`;

export const Field = ({ label, children }) => html`<div class="field"><dt>${label}</dt><dd>${children}</dd></div>`;

// A long text with the rest behind a button.
function Long({ value, children }) {
  const wanted = useRoute()?.query.q?.toLowerCase(); // the rest is shown if a search found something in it
  const [all, setAll] = useState(() => Boolean(wanted) && value.toLowerCase().indexOf(wanted, MOST_CHARS) >= 0);
  const whole = all || value.length <= MOST_CHARS;
  return html`${children(whole ? value : value.slice(0, MOST_CHARS))}
    ${
      whole
        ? null
        : html`<button type="button" class="more"
          onClick=${() => setAll(true)}>Show ${number(value.length - MOST_CHARS)} more characters</button>`
    }`;
}

const Output = ({ value }) => html`<${Long} value=${value}>${(part) => html`<${Ansi} text=${part} />`}<//>`;
const Source = ({ value, language }) =>
  html`<${Long} value=${value}>
  ${(part) => html`<${Code} text=${part} language=${language} />`}<//>`;

export function Numbered({ value, start = 1, language }) {
  return html`<${Long} value=${value.replace(/\n$/, "")}>${(part) => {
    const count = part.split("\n").length;
    return html`<div class="numbered" tabindex="0" role="region" aria-label="file">
      <pre class="numbers" aria-hidden="true">${Array.from({ length: count }, (_, n) => start + n).join("\n")}</pre>
      <${Code} text=${part} language=${language} /></div>`;
  }}<//>`;
}

export function Picture({ type, data }) {
  if (!IMAGE.test(type) || !/^[A-Za-z0-9+/=\s]*$/.test(data))
    return html`<p class="faint">
    ${type || "A block"} that is not shown</p>`;
  return html`<img class="picture" alt="picture in the result" src=${`data:${type};base64,${data}`} />`;
}

// Input

const hidden = {
  shell: ["command", "cmd", "description"],
  edit: ["file_path", "old_string", "new_string", "edits", "input", "path", "new_source", "notebook_path"],
  write: ["file_path", "content", "path"],
  agent: ["prompt", "description"],
  plan: ["todos", "plan", "description"],
  question: ["questions"],
};

export function CallInput({ data }) {
  const { call, input, diff } = data;
  if (input === null || input === undefined) return html`<p class="faint">The request is not in the transcript.</p>`;
  if (!isObject(input)) return html`<${Source} value=${text(input) || JSON.stringify(input, null, 2)} />`;
  const rest = Object.entries(input).filter(([key]) => !(hidden[call.kind] ?? []).includes(key));
  return html`<${MainInput} call=${call} input=${input} diff=${diff} />
    ${
      rest.length
        ? html`<dl class="fields">${rest.map(
            ([key, value]) => html`<${Field} key=${key} label=${key}><${Value} name=${key} value=${value} /><//>`,
          )}</dl>`
        : null
    }`;
}

function MainInput({ call, input, diff }) {
  switch (call.kind) {
    case "shell": {
      const command = commandOf(input);
      return html`${text(input.description) ? html`<p class="described">${input.description}</p>` : null}
        ${command ? html`<div class="command"><${Code} text=${command} language="bash" /></div>` : null}`;
    }
    case "edit": {
      const edits = Array.isArray(input.edits) ? input.edits.filter(isObject) : [input];
      const asked = edits
        .map((edit) => pairDiff(text(edit.old_string), text(edit.new_string) || text(edit.new_source)))
        .filter(Boolean);
      return html`${pathOf(input) ? html`<p class="mono path">${pathOf(input)}</p>` : null}${
        diff
          ? null
          : text(input.input)
            ? html`<${Source} value=${input.input} language="diff" />`
            : asked.map((one) => html`<${Diff} text=${one} />`)
      }`;
    }
    case "write":
      return html`<p class="mono path">${pathOf(input)}</p>
        ${diff ? null : html`<${Numbered} value=${text(input.content)} language=${languageOf(pathOf(input))} />`}`;
    case "agent":
      return html`${text(input.description) ? html`<p class="described">${input.description}</p>` : null}
        ${text(input.prompt) ? html`<${Markdown} text=${input.prompt} />` : null}`;
    case "plan": {
      const todos = Array.isArray(input.todos) ? input.todos : Array.isArray(input.plan) ? input.plan : [];
      return html`${todos.length ? html`<${Todos} todos=${todos} />` : null}
        ${text(input.plan) ? html`<${Markdown} text=${input.plan} />` : null}
        ${text(input.description) ? html`<p class="described">${input.description}</p>` : null}`;
    }
    case "question":
      return (Array.isArray(input.questions) ? input.questions : []).filter(isObject).map(
        (question) =>
          html`<div class="question"><b>${text(question.question)}</b>
        <ul>${(Array.isArray(question.options) ? question.options : []).map(
          (option) =>
            html`<li>${text(option?.label) || text(option)}
              ${text(option?.description) ? html` <span class="faint">${option.description}</span>` : null}</li>`,
        )}</ul>
          </div>`,
      );
    default:
      return null;
  }
}

const MARKS = { completed: "☑", in_progress: "◐", pending: "☐" };
const Todos = ({ todos }) =>
  html`<ul class="todos">
  ${todos.filter(isObject).map(
    (todo) =>
      html`<li><span title=${text(todo.status)}>${MARKS[todo.status] ?? "☐"}
        </span> ${text(todo.content) || text(todo.step)}</li>`,
  )}</ul>`;

function Value({ name, value }) {
  if (typeof value === "string") {
    if (/^https?:/.test(value) || name === "url") return html`<${SafeLink} url=${value} />`;
    return value.length > 160 || value.includes("\n")
      ? html`<${Output} value=${value} />`
      : html`<span class="mono">${value}</span>`;
  }
  const json = JSON.stringify(value, null, 2) ?? "";
  return json.includes("\n")
    ? html`<${Source} value=${json} language="json" />`
    : html`<span class="mono">${json}</span>`;
}

// Result

export function CallResult({ data, blocks }) {
  const { call, result, input } = data;
  if (!result) return html`<p class="faint">There is no result in the transcript.</p>`;
  const structured = isObject(result.structured) ? result.structured : {};
  return html`${result.summary ? html`<p class="described">${result.summary}</p>` : null}
    <${MainResult} call=${call} input=${isObject(input) ? input : {}} result=${result} structured=${structured}
      blocks=${blocks} />`;
}

function MainResult({ call, input, result, structured, blocks }) {
  const plain = text(result.text);
  if (call.state !== "succeeded" && result.structured_type === "ErrorText") return html`<${Output} value=${plain} />`;
  const file = isObject(structured.file) ? structured.file : {};
  const pictures = (blocks ?? []).map(pictureOf).filter(Boolean);
  if (Array.isArray(file.cells)) return html`<${Notebook} cells=${file.cells} />`;
  if (text(file.base64) && !pictures.length) return html`<${Picture} type=${text(file.type)} data=${file.base64} />`;
  if (call.kind === "read" && text(file.content)) {
    const start = Number(file.startLine) || 1;
    // else a line break at the end is an empty line of the file
    const isEnd = !(start + file.numLines - 1 < file.totalLines);
    return html`<${Numbered} value=${isEnd ? file.content : `${file.content}\n`} start=${start}
        language=${languageOf(pathOf(input))} />`;
  }
  if (call.kind === "shell" && (text(structured.stdout) || text(structured.stderr))) {
    return html`${text(structured.stdout) ? html`<${Output} value=${structured.stdout} />` : null}
      ${text(structured.stderr) ? html`<h3>stderr</h3><${Output} value=${structured.stderr} />` : null}`;
  }
  if (
    call.kind === "search" &&
    Array.isArray(structured.filenames) &&
    structured.filenames.length &&
    !text(structured.content)
  ) {
    return html`<${FileList} names=${structured.filenames} />`;
  }
  if (call.kind === "search" && text(structured.content)) return html`<${Output} value=${structured.content} />`;
  const listed = blocks ?? (Array.isArray(structured.blocks) ? structured.blocks : null);
  if (listed?.length && (call.kind === "mcp" || pictures.length))
    return listed.map((block) => html`<${Block} block=${block} kind=${call.kind} />`);
  if (call.kind === "agent" || call.kind === "web") return html`<${Markdown} text=${plain} />`;
  if (call.kind === "mcp" || call.kind === "other") return html`<${TextOrJson} value=${plain} />`;
  return plain ? html`<${Output} value=${plain} />` : html`<p class="faint">No output.</p>`;
}

function FileList({ names }) {
  const [all, setAll] = useState(false);
  const shown = all ? names : names.slice(0, 300);
  return html`<ul class="names mono">${shown.map((name) => html`<li>${String(name)}</li>`)}</ul>
    ${
      shown.length < names.length
        ? html`<button type="button" class="more"
          onClick=${() => setAll(true)}>Show ${plural(names.length - shown.length, "more file")}</button>`
        : null
    }`;
}

function pictureOf(block) {
  if (!isObject(block)) return null;
  const source = isObject(block.source) ? block.source : {};
  if (block.type === "image" && text(source.data)) return [text(source.media_type), source.data];
  if (block.type === "image" && text(block.data)) return [text(block.mimeType), block.data];
  const address = /^data:(image\/[a-z]+);base64,(.*)$/s.exec(text(block.image_url));
  return address ? [address[1], address[2]] : null;
}

function Block({ block, kind }) {
  const picture = pictureOf(block);
  if (picture) return html`<${Picture} type=${picture[0]} data=${picture[1]} />`;
  if (text(block?.text))
    return kind === "mcp" ? html`<${TextOrJson} value=${block.text} />` : html`<${Output} value=${block.text} />`;
  return html`<${Source} value=${JSON.stringify(block, (key, value) => (value === null ? undefined : value), 2)}
      language="json" />`;
}

function TextOrJson({ value }) {
  if (/^\s*[[{]/.test(value) && value.length < 500_000) {
    try {
      return html`<${Source} value=${JSON.stringify(JSON.parse(value), null, 2)} language="json" />`;
    } catch {
      /* not JSON */
    }
  }
  return html`<${Output} value=${value} />`;
}

const joined = (value) => (Array.isArray(value) ? value.map(text).join("") : text(value));

function Notebook({ cells }) {
  return html`<div class="notebook">${cells.filter(isObject).map((cell) => {
    const type = text(cell.cellType ?? cell.cell_type);
    return html`<div class="cell">${
      type === "markdown"
        ? html`<${Markdown} text=${joined(cell.source)} />`
        : html`<${Source} value=${joined(cell.source)} language=${text(cell.language) || "python"} />`
    }
      ${(Array.isArray(cell.outputs) ? cell.outputs : [])
        .filter(isObject)
        .map((output) => html`<${CellOutput} output=${output} />`)}</div>`;
  })}</div>`;
}

function CellOutput({ output }) {
  const image = isObject(output.image) ? output.image : null;
  if (image && text(image.image_data ?? image.imageData))
    return html`<${Picture}
      type=${text(image.media_type ?? image.mediaType)} data=${image.image_data ?? image.imageData} />`;
  const value = joined(output.text);
  return value ? html`<${Output} value=${value} />` : null;
}
