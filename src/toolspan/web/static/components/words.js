// Symbols, tones and words that the command line uses, too. The page contains them; archive/words.py defines them.
export const WORDS = JSON.parse(document.getElementById("words").textContent);
export const STATES = WORDS.states; // [symbol, tone] by state

// Whether a call counts as unsuccessful, as in `toolspan stats`: searches that found nothing do not.
export const isUnsuccessful = ({ state, error_kind }) =>
  WORDS.unsuccessful_states.includes(state) && error_kind !== "nothing_found";
