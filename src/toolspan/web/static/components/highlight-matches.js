// What a search found, marked where it is shown.

const MAX_MARKS = 500;

// Mark all occurrences of a text in an element, also in what is added later, and scroll to the first one below
// `target`, a selector. Returns the function that ends it.
export function markHits(root, text, target) {
  if (!root || !text || !globalThis.Highlight) return () => {};
  const wanted = text.toLowerCase();
  let isShown = false;
  const mark = () => {
    const ranges = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node && ranges.length < MAX_MARKS; node = walker.nextNode()) {
      const data = node.data.toLowerCase();
      for (
        let at = data.indexOf(wanted);
        at >= 0 && ranges.length < MAX_MARKS;
        at = data.indexOf(wanted, at + wanted.length)
      ) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + wanted.length);
        ranges.push(range);
      }
    }
    CSS.highlights.set("hit", new Highlight(...ranges));
    const first = ranges.find(({ startContainer }) => startContainer.parentElement.closest(target));
    if (first && !isShown) {
      isShown = true;
      scrollTo(first, root);
    }
  };
  const observer = new MutationObserver(mark);
  observer.observe(root, { childList: true, subtree: true, characterData: true });
  mark();
  return () => {
    observer.disconnect();
    CSS.highlights.delete("hit");
  };
}

// Scroll every box around a range so that the range is in its middle.
function scrollTo(range, root) {
  for (let box = range.startContainer.parentElement; box && box !== root; box = box.parentElement) {
    if (box.scrollHeight <= box.clientHeight || getComputedStyle(box).overflowY === "visible") continue;
    box.scrollTop += range.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
  }
}
