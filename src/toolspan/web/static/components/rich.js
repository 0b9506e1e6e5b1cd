// Text from transcripts as Markdown, coloured code or ANSI output. It may be hostile: everything passes through
// DOMPurify, which is the only source of HTML that the page's policy (trusted types) accepts.
import { html, useEffect, useRef, useState } from "../lib.js";
import { makeElementVisible } from "../visible.js";

let tools = null; // loaded when the page is idle, or when first needed

export async function loadTools() {
  tools ??= Promise.all([
    import("../vendor/dompurify.js"),
    import("../vendor/markdown-it.js"),
    import("../vendor/highlight.js"),
  ]).then(([purify, markdown, highlight]) => {
    const DOMPurify = purify.default;
    DOMPurify.addHook("afterSanitizeAttributes", (node) => {
      if (node.tagName === "A") {
        node.setAttribute("target", "_blank");
        node.setAttribute("rel", "noopener noreferrer");
      }
      if (node.tagName === "IMG" && !/^data:image\/(png|jpeg|gif|webp);/.test(node.getAttribute("src") ?? ""))
        node.remove();
    });
    const hljs = highlight.default;
    const colour = (code, language) =>
      language && hljs.getLanguage(language) && code.length < 200_000
        ? hljs.highlight(code, { language, ignoreIllegals: true }).value
        : escapeHtml(code);
    const md = markdown.default({ html: false, linkify: true, highlight: colour });
    const clean = (text) =>
      DOMPurify.sanitize(text, {
        RETURN_TRUSTED_TYPE: true,
        FORBID_TAGS: ["style", "form", "input", "svg", "math"],
        FORBID_ATTR: ["style", "id", "name"],
      });
    return { clean, md, colour };
  });
  return tools;
}

const SCROLLS = { tabindex: 0, role: "region", "aria-label": "text" }; // keys can scroll it

const escapeHtml = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

// Until the libraries are loaded, and if they fail, the text is shown as it is.
function Rich({ text, make, className, tag }) {
  const [markup, setMarkup] = useState(null);
  const box = useRef(null);
  const focus = tag === "pre" ? SCROLLS : {};
  useEffect(() => {
    let shown = true;
    loadTools().then((loaded) => shown && setMarkup(make(loaded)));
    return () => {
      shown = false;
    };
  }, [text]);
  useEffect(() => {
    if (markup === null || !box.current) return;
    box.current.innerHTML = markup;
    makeElementVisible(box.current);
  }, [markup]);
  return markup === null
    ? html`<${tag} key="plain" class=${className} ...${focus}>${text}<//>`
    : html`<${tag} key="rich" class=${className} ...${focus} ref=${box} />`;
}

export const Markdown = ({ text }) =>
  html`<${Rich} text=${text} tag="div" className="markdown"
    make=${({ md, clean }) => clean(md.render(text))} />`;

export const Code = ({ text, language }) =>
  html`<${Rich} text=${text} tag="pre" className="code"
      make=${({ colour, clean }) => clean(colour(text, language))} />`;

// SGR colours of terminal output as spans; all other escape sequences are dropped.
export function Ansi({ text }) {
  const parts = [];
  let classes = [];
  for (const piece of (text ?? "").split(/(\x1b\[[0-9;:]*m)/)) {
    const sgr = /^\x1b\[([0-9;:]*)m$/.exec(piece);
    if (!sgr) {
      const plain = piece.replace(
        /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g,
        "",
      );
      if (plain) parts.push(classes.length ? html`<span class=${classes.join(" ")}>${plain}</span>` : plain);
      continue;
    }
    for (const code of (sgr[1] || "0").split(/[;:]/).map(Number)) {
      if (code === 0) classes = [];
      else if (code === 1) classes = [...classes, "ansi-bold"];
      else if (code === 39) classes = classes.filter((name) => !/^ansi-\d/.test(name));
      else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
        classes = [...classes.filter((name) => !/^ansi-\d/.test(name)), `ansi-${code >= 90 ? code - 90 : code - 30}`];
      }
    }
  }
  return html`<pre class="code ansi" ...${SCROLLS}>${parts}</pre>`;
}
