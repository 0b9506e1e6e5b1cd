// Symbols, tones and words that the command line uses, too. The page contains them; archive/words.py defines them.
export const WORDS = JSON.parse(document.getElementById("words").textContent);
export const STATES = WORDS.states; // [symbol, tone] by state

// The labels of error kinds, and of the ways in which later calls recovered a failure.
export const kindName = (kind) => WORDS.kinds[kind] ?? (kind ?? "").replaceAll("_", " ");
export const recoveryName = (name) => WORDS.recoveries[name] ?? name;

// Whether a call counts as unsuccessful, as in `toolspan stats`: searches that found nothing do not.
export const isUnsuccessful = ({ state, error_kind }) =>
  WORDS.unsuccessful_states.includes(state) && error_kind !== "nothing_found";
