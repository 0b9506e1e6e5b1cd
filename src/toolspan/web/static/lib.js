// Everything that views and components import from the vendored Preact and htm.
import { h, options } from "./vendor/preact.js";
import htm from "./vendor/htm.js";
import { makeVisible } from "./visible.js";

export { Component, createContext, render } from "./vendor/preact.js";
export {
  useState,
  useReducer,
  useEffect,
  useLayoutEffect,
  useRef,
  useMemo,
  useCallback,
  useContext,
  useErrorBoundary,
} from "./vendor/preact-hooks.js";

export const html = htm.bind(h);

// Every element of the page passes here, so that no view can forget it.
options.vnode = (vnode) => makeVisible(vnode, h);
