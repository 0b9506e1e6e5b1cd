// Everything that views and components import from the vendored Preact and htm.
export {
  html, render, createContext, Component,
  useState, useReducer, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useErrorBoundary,
} from "./vendor/preact-htm.js";
