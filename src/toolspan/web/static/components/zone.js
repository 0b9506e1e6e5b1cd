// The time zone of all times and days of the page: that of the browser, or UTC.
import { html } from "../lib.js";

const KEY = "toolspan-zone";

function storage(use) {
  try {
    return use(localStorage);
  } catch {
    return null; // the browser forbids it
  }
}

export const isUtc = storage((store) => store.getItem(KEY)) === "UTC";
export const timeZone = isUtc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;

// Return the numbers of a time in this zone.
export function partsOf(date) {
  if (isUtc)
    return {
      year: date.getUTCFullYear(),
      month: date.getUTCMonth(),
      date: date.getUTCDate(),
      weekday: date.getUTCDay(),
      hours: date.getUTCHours(),
      minutes: date.getUTCMinutes(),
      seconds: date.getUTCSeconds(),
    };
  return {
    year: date.getFullYear(),
    month: date.getMonth(),
    date: date.getDate(),
    weekday: date.getDay(),
    hours: date.getHours(),
    minutes: date.getMinutes(),
    seconds: date.getSeconds(),
  };
}

// Return the time of numbers in this zone. Months count from 0; numbers that are too large count on.
export const timeOf = (year, month, date = 1, hours = 0) =>
  isUtc ? new Date(Date.UTC(year, month, date, hours)) : new Date(year, month, date, hours);

export function ZoneButton() {
  const toggle = () => {
    storage((store) => store.setItem(KEY, isUtc ? "local" : "UTC"));
    location.reload();
  };
  return html`<button type="button" class="quiet small" data-test="zone"
      title=${`All times and days are in ${isUtc ? "UTC" : timeZone}`}
      aria-label=${`Time zone: ${isUtc ? "UTC" : "local"}; change to ${isUtc ? "local" : "UTC"}`} onClick=${toggle}>
    ${isUtc ? "UTC" : "local"}</button>`;
}
