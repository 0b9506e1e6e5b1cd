// Tooltips of the page: those of browsers wait for a second, and do not exist for touch. The texts are `title`
// attributes, which an element loses only while its tooltip is shown.
const DELAY_MS = 120;
let [owner, text, timer] = [null, "", 0];
const box = Object.assign(document.createElement("div"), { className: "tooltip", hidden: true });
box.setAttribute("role", "tooltip");

function hide() {
  clearTimeout(timer);
  box.hidden = true;
  if (owner && !owner.hasAttribute("title")) owner.setAttribute("title", text);
  owner = null;
}

function place(element) {
  const [from, to] = [element.getBoundingClientRect(), box.getBoundingClientRect()];
  box.style.left = `${Math.max(4, Math.min(innerWidth - to.width - 4, from.left + from.width / 2 - to.width / 2))}px`;
  box.style.top = `${from.top > to.height + 8 ? from.top - to.height - 6 : from.bottom + 6}px`;
}

function show({ target }) {
  const element = target.closest?.("[title]");
  if (!element || element === owner || !element.title) return;
  hide();
  [owner, text] = [element, element.title];
  element.removeAttribute("title");
  timer = setTimeout(() => {
    if (!element.isConnected) return;
    box.textContent = text;
    (element.closest("dialog") ?? document.body).append(box);
    box.hidden = false;
    place(element);
  }, DELAY_MS);
}

export function startTooltips() {
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", (event) => {
    if (event.target.matches?.(":focus-visible")) show(event);
  });
  document.addEventListener("pointerout", ({ target, relatedTarget }) => {
    if (owner?.contains(target) && !owner.contains(relatedTarget)) hide();
  });
  for (const name of ["focusout", "scroll", "keydown", "click"]) document.addEventListener(name, hide, true);
}
