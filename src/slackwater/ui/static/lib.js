// Formats, signals and loading that all views share.
import { h } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { computed, signal } from "@preact/signals";

export const html = htm.bind(h);

// ---- settings

function stored(name, fallback) {
  try { return localStorage.getItem(`slackwater.${name}`) ?? fallback; } catch { return fallback; }
}
export function keep(name, value) {
  try { localStorage.setItem(`slackwater.${name}`, value); } catch { /* storage is disabled */ }
}
export const zone = signal(stored("zone", "utc") === "local" ? "local" : "utc");
export const theme = signal(stored("theme", "auto"));
export const paused = signal(false);

// ---- the route: #/view/part/part?name=value

function parseRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { view: parts[0] || "now", parts: parts.slice(1), query: new URLSearchParams(query) };
}
function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
export const route = signal(parseRoute());
addEventListener("hashchange", () => { route.value = parseRoute(); });
export function link(view, parts = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const tail = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${[view, ...parts].map(encodeURIComponent).join("/")}${tail}`;
}
export function go(...where) { location.hash = link(...where); }

// ---- the server: its status, and whether it answers

export const status = signal(null);
export const connection = signal("connecting");
export const restarted = signal(null);
const heard = signal(null);   // performance.now() of the last message
export const ticking = signal(0);
setInterval(() => { ticking.value += 1; }, 1000);

export function listen() {
  const source = new EventSource("/api/events");
  source.addEventListener("status", (event) => {
    const found = JSON.parse(event.data);
    if (status.value && status.value.started_at !== found.started_at) restarted.value = found.started_at;
    status.value = found;
    heard.value = performance.now();
    connection.value = "live";
  });
  source.addEventListener("error", () => {
    connection.value = "lost";
    if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(listen, 3000); }
  });
}
// The clock of the server, moved on by a clock that cannot jump.
export const serverNow = computed(() => {
  ticking.value;
  if (!status.value) return Date.now() * 1000;
  return status.value.now + (performance.now() - heard.value) * 1000;
});

// ---- loading: the last good answer stays, with its age, when the next one fails

export function useView(path) {
  const [state, setState] = useState({ path: null, data: null, error: null });
  const changes = status.value?.changes ?? 0;
  const isPaused = paused.value;
  const visible = useVisible();
  useEffect(() => {
    if (!path || (isPaused && state.path === path && state.data) || !visible) return undefined;
    const control = new AbortController();
    fetch(path, { signal: control.signal })
      .then(async (response) => {
        const answer = await response.json();
        if (!response.ok) throw new Error(answer.error || answer.detail?.[0]?.msg || `the server answered ${response.status}`);
        if (!control.signal.aborted) setState({ path, data: answer, error: null });
      })
      .catch((error) => {
        if (error.name === "AbortError" || control.signal.aborted) return;
        const text = error instanceof TypeError ? "the server does not answer" : error.message;
        setState((old) => ({ path, data: old.path === path ? old.data : null, error: text }));
      });
    return () => control.abort();
  }, [path, changes, connection.value, isPaused, visible]);
  return state.path === path ? state : { path, data: null, error: null };
}
// The last answer for the same key, while the next one is loading: what a person types into stays on the page.
export function useLast(state, key) {
  const last = useRef({ key: null, data: null });
  if (state.data) last.current = { key, data: state.data };
  return last.current.key === key ? last.current.data : null;
}
function useVisible() {
  const [visible, setVisible] = useState(!document.hidden);
  useEffect(() => {
    const changed = () => setVisible(!document.hidden);
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
  return visible;
}
export function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!ref.current) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

// ---- text

const END = 9.2e18;
export function isEnd(at) { return at !== null && at >= END; }
export function isBeginning(at) { return at !== null && at <= -END; }
const two = (number, digits = 2) => String(number).padStart(digits, "0");
export function fieldsOf(at, where = zone.value) {
  const date = new Date(Math.floor(at / 1000));
  if (Number.isNaN(date.getTime())) return null;
  return where === "utc"
    ? [date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate(), date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds(), date.getUTCMilliseconds()]
    : [date.getFullYear(), date.getMonth() + 1, date.getDate(), date.getHours(), date.getMinutes(), date.getSeconds(), date.getMilliseconds()];
}
// A time; the date is left out within 12 hours of now, unless asked.
export function time(at, { date = "auto", seconds = true } = {}) {
  if (at === null || at === undefined) return "unknown";
  if (isEnd(at)) return "end of time";
  if (isBeginning(at)) return "beginning of time";
  const parts = fieldsOf(at);
  if (!parts) return `${at} µs`;
  const [year, month, day, hour, minute, second, milli] = parts;
  const isNear = Math.abs(at - serverNow.peek()) < 432e8;
  const fraction = milli ? `.${two(milli, 3)}` : "";
  const clock = `${two(hour)}:${two(minute)}${seconds ? `:${two(second)}${fraction}` : ""}`;
  const text = `${two(year, 4)}-${two(month)}-${two(day)}`;
  const suffix = zone.value === "utc" ? "Z" : "";
  if (date === "only") return text;
  return date === true || (date === "auto" && !isNear) ? `${text} ${clock}${suffix}` : `${clock}${suffix}`;
}
// A text of the server with its times, which are UTC, in the chosen zone; names are in quotes and stay.
const QUOTED = /('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")/;
const TIMES = /(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z|\b\d\d:\d\d:\d\d\b/g;
export function local(text) {
  if (zone.value === "utc") return text;
  const now = serverNow.peek();
  const shown = (found, day, clock) => {
    if (day) return time(Date.parse(`${day}T${clock}Z`) * 1000);
    // Only a time within 12 hours is written without its date.
    let at = Date.parse(`${new Date(now / 1000).toISOString().slice(0, 10)}T${found}Z`) * 1000;
    if (at - now > 432e8) at -= 864e8;
    if (now - at > 432e8) at += 864e8;
    return time(at, { date: false });
  };
  return text.split(QUOTED).map((part, index) => (index % 2 ? part : part.replace(TIMES, shown))).join("");
}
export function duration(micros) {
  if (micros === null || micros === undefined) return "unknown";
  const sign = micros < 0 ? "−" : "";
  let rest = Math.abs(Math.round(micros));
  if (rest < 1000) return rest ? `${sign}${rest} µs` : "0 s";
  const parts = [];
  for (const [unit, size] of [["d", 864e8], ["h", 36e8], ["min", 6e7], ["s", 1e6], ["ms", 1e3]]) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return sign + parts.join(" ");
}
export function ago(at) {
  const passed = serverNow.value - at;
  return passed < 1e6 ? "just now" : `${duration(Math.floor(passed / 1e6) * 1e6)} ago`;
}
const numbers = new Intl.NumberFormat("en");
export const number = (value) => (value === null || value === undefined ? "" : numbers.format(value));
export function bytes(value) {
  if (value === null || value === undefined) return "";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let index = 0;
  while (value >= 1000 && index < units.length - 1) { value /= 1000; index += 1; }
  return `${index && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[index]}`;
}
export const counted = (count, noun, plural = `${noun}s`) => `${number(count)} ${count === 1 ? noun : plural}`;
export function shorten(text, most = 90) {
  const value = String(text);
  return value.length > most ? `${value.slice(0, most - 1)}…` : value;
}
export function unitText(key) {
  if (key === "{}") return "all";
  try {
    return Object.entries(JSON.parse(key)).map(([name, value]) => `${name}=${value}`).join(", ");
  } catch { return key; }
}

// ---- axes

const STEPS = [1e3, 1e4, 1e5, 1e6, 5e6, 15e6, 3e7, 6e7, 3e8, 9e8, 18e8, 36e8, 108e8, 216e8, 432e8, 864e8, 1728e8, 6048e8, 2592e9, 7776e9, 31536e9, 15768e10];
export function ticks(low, high, most) {
  const span = Math.max(1, high - low);
  const step = STEPS.find((each) => span / each <= most) ?? STEPS.at(-1);
  const shift = zone.value === "local" ? -new Date(low / 1000).getTimezoneOffset() * 6e7 : 0;
  const found = [];
  for (let at = Math.ceil((low + shift) / step) * step - shift; at <= high && found.length < 60; at += step) {
    found.push({ at, text: tickText(at, step) });
  }
  return found;
}
export function tickText(at, step) {
  const parts = fieldsOf(at);
  if (!parts) return "";
  const [year, month, day, hour, minute, second, milli] = parts;
  if (step >= 2592e9) return `${year}-${two(month)}`;
  if (step >= 864e8) return `${two(month)}-${two(day)}`;
  if (hour === 0 && minute === 0 && second === 0 && step >= 6e7) return `${two(month)}-${two(day)}`;
  if (step >= 6e7) return `${two(hour)}:${two(minute)}`;
  return `${two(hour)}:${two(minute)}:${two(second)}${step < 1e6 ? `.${two(milli, 3)}` : ""}`;
}
export function padded(low, high, share = 0.04) {
  const span = Math.max(high - low, 1e6);
  return [low - span * share, high + span * share];
}
