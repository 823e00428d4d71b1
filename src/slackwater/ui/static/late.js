// The Late view: how late rows are, what another lag or allowed lateness would change, and samples.
import { useMemo, useRef, useState } from "preact/hooks";
import { counted, duration, html, link, number, route, time, useView, useWidth } from "./lib.js";
import { At, Badge, Field, Legend, Loaded, Name, Stale, Table } from "./parts.js";
import { QueryHead } from "./now.js";
import { Pick } from "./pick.js";

export function Late() {
  const { parts } = route.value;
  return parts.length ? html`<${Query} name=${parts[0]} />` : html`<${Pick} view="late" title="Late rows" text="Choose a query to see how late its rows are." />`;
}
const REASONS = { late: "too late", closed: "its window had closed by its trigger", invalid: "no usable event time" };

function Query({ name }) {
  const state = useView(`/api/late?${new URLSearchParams({ name })}`);
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => html`
    <${QueryHead} summary=${data.summary} view="late"> Dropped: ${Object.entries(data.dropped).map(([reason, count]) => `${number(count)} ${reason}`).join(", ") || "nothing"}.<//>
    <section class="card"><h2>How late rows are</h2><${Distribution} data=${data} name=${name} /></section>
    <section class="card"><h2>Dropped rows</h2><${Table} caption="A sample, newest first: all active origins had passed the watermark of that time" rows=${data.samples} most=${30} empty="No dropped row was sampled." columns=${[
      ["Batch", (row) => html`<${At} at=${row.at} />`, { sort: (row) => row.at }],
      ["Reason", (row) => html`<${Badge} state=${row.kind === "late" ? "late" : row.kind === "closed" ? "grace" : "failed"} text=${REASONS[row.kind]} />`, { sort: (row) => row.kind }],
      ...(data.samples.some((row) => row.side) ? [["Side", (row) => row.side ?? "", { sort: (row) => row.side ?? "" }]] : []),
      ["Origin", (row) => (row.origin === null ? "not known" : html`<${Name} text=${row.origin} most=${50} />`), { sort: (row) => row.origin }],
      ["Event time", (row) => (row.event_time === null ? "" : html`<${At} at=${row.event_time} />`), { sort: (row) => row.event_time }],
      ["Window", (row) => (row.window_end === null ? "" : html`<span class="nowrap mono">${time(row.window_start)} to ${time(row.window_end)}</span>`)],
      ["Late by", (row) => (row.lateness === null ? "" : duration(row.lateness)), { class: "right", sort: (row) => row.lateness }],
      ["Watermark then", (row) => (row.watermark === null ? "" : html`<${At} at=${row.watermark} />`)],
      ["Slowest origin then", (row) => (row.ahead ? html`<${Name} text=${row.ahead} most=${40} />` : "")],
      ["Rows", (row) => number(row.rows), { class: "right" }],
      ["Values", (row) => (row.values === null ? html`<span class="quiet">redacted</span>` : html`<code>${Object.entries(row.values).map(([column, value]) => `${column}=${value}`).join(", ").slice(0, 400)}</code>`)],
    ]} /></section>`}<//>`;
}

// Rows whose delay is at most a bound; the bins are [bound, rows].
const within = (bins, delay) => bins.reduce((sum, [bound, rows]) => (bound <= delay ? sum + rows : sum), 0);

function Distribution({ data, name }) {
  const { query } = route.value;
  const origin = query.get("origin") ?? "";
  const bins = useMemo(() => {
    const sums = new Map();
    for (const each of data.delays) if (!origin || each.origin === origin) for (const [bound, rows] of each.bins) sums.set(bound, (sums.get(bound) ?? 0) + rows);
    return [...sums].sort((a, b) => a[0] - b[0]);
  }, [data, origin]);
  const total = bins.reduce((sum, [, rows]) => sum + rows, 0);
  const estimate = useMemo(() => estimatedLag(bins, total, (data.dropped.late ?? 0)), [bins]);
  const [base, setBase] = useState(null);
  const [lag, setLag] = useState(null);
  const [lateness, setLateness] = useState(0);
  if (!total) return html`<p class="empty">The reports of this query contain no delays yet.</p>`;
  const configured = data.lags.find((each) => !origin.includes(": ") || each.name.startsWith(origin.split(": ")[0]))?.lag;
  const now = base ?? configured ?? estimate, next = lag ?? now;
  const before = total - within(bins, now), after = total - within(bins, next), dropped = total - within(bins, next + lateness);
  return html`
    <p class="sentence" aria-live="polite">${sentence(now, next, lateness, before, after, dropped, total)}</p>
    ${data.lags.filter((each) => each.coverage !== null).map((each) => html`<p class="quiet small" key=${each.name}>Learned${each.name === "default" ? "" : ` for ${each.name}`}: a lag of ${duration(each.lag)} ${each.since === null ? "at first" : html`since ${time(each.since)}`}, for ${(100 * each.coverage).toPrecision(4).replace(/\.?0+$/, "")} % of the rows.</p>`)}
    ${data.advice && html`<p class="quiet small">Recommended: ${data.advice}.</p>`}
    <div class="row" style=${{ margin: ".4rem 0" }}>
      ${data.delays.length > 1 && html`<${Field} label="Origin"><select value=${origin} onChange=${(event) => { location.hash = link("late", [name], { origin: event.target.value }); }}>
        <option value="">all ${number(data.origins)}</option>${data.delays.map((each) => html`<option key=${each.origin} value=${each.origin} selected=${each.origin === origin}>${each.origin.slice(0, 60)}</option>`)}</select><//>`}
      <${Field} label="Lag now (s)"><input type="number" min="0" step="any" style=${{ width: "7rem" }} value=${Math.round(now / 1e3) / 1e3} onInput=${(event) => setBase(Math.max(0, Number(event.target.value) * 1e6))} /><//>
      <span class="quiet small">${base !== null ? "" : configured === undefined ? "estimated from the number of late rows" : "of the query"}</span></div>
    <${Histogram} bins=${bins} lag=${next} lateness=${lateness} onLag=${setLag} onLateness=${setLateness} />
    <${Legend} items=${[["done", "within the lag"], ["owed", "late, kept by the allowed lateness"], ["failed", "late beyond it"]]} />
    <p class="quiet small">Drag the two lines, or use the arrow keys on them. A row beyond both may still be kept if its window ends later.</p>
    <${Table} caption="By origin" rows=${data.delays} rowKey=${(each) => each.origin} most=${20} columns=${[
      ["Origin", (each) => html`<a href=${link("late", [name], { origin: each.origin })}><${Name} text=${each.origin} most=${60} /></a>`, { sort: (each) => each.origin }],
      ["Rows", (each) => number(each.rows), { class: "right", sort: (each) => each.rows }],
      ["Half within", (each) => duration(quantile(each, 0.5)), { class: "right", sort: (each) => quantile(each, 0.5) }],
      ["99 % within", (each) => duration(quantile(each, 0.99)), { class: "right", sort: (each) => quantile(each, 0.99) }],
      ["Largest", (each) => duration(each.highest), { class: "right", sort: (each) => each.highest }],
      [`Later than ${duration(next)}`, (each) => number(each.rows - within(each.bins, next)), { class: "right", sort: (each) => each.rows - within(each.bins, next) }],
    ]} />`;
}
function quantile({ bins, rows, highest }, share) {
  let seen = 0;
  for (const [bound, count] of bins) { seen += count; if (seen >= share * rows) return Math.min(bound, highest); }
  return highest;
}
// The lag at which as many rows would be late as were dropped.
function estimatedLag(bins, total, late) {
  let found = bins.length ? bins.at(-1)[0] : 0;
  for (let index = bins.length - 1, beyond = 0; index >= 0; index -= 1) {
    if (beyond > late) break;
    found = bins[index][0];
    beyond += bins[index][1];
  }
  return found;
}
function sentence(now, next, lateness, before, after, dropped, total) {
  const allowed = lateness ? `; with ${duration(lateness)} of allowed lateness at most ${counted(dropped, "row")} dropped` : "";
  if (next === now) return `${duration(now)} of lag: ${number(before)} of ${counted(total, "row")} late${allowed}.`;
  const kept = before - after;
  const effect = kept >= 0 ? `${number(kept)} of ${counted(before, "late row")} kept` : `${number(-kept)} more rows late`;
  const cost = next > now ? `results ${duration(next - now)} later` : `results ${duration(now - next)} earlier`;
  return `${duration(next)} instead of ${duration(now)}: ${effect}, ${cost}${allowed}.`;
}

const HEIGHT = 200, BOTTOM = 22, SMALLEST = 1e3;
const BOUNDS = [1e3, 1e4, 1e5, 1e6, 5e6, 15e6, 6e7, 3e8, 18e8, 72e8, 432e8, 864e8, 6048e8, 2592e9];
function Histogram({ bins, lag, lateness, onLag, onLateness }) {
  const [ref, width] = useWidth();
  const svg = useRef(null);
  const low = Math.log(SMALLEST);
  const high = Math.log(Math.max(bins.at(-1)[0], lag + lateness, 1e4) * 1.6);
  const x = (delay) => ((Math.log(Math.max(SMALLEST, delay)) - low) / (high - low)) * (width - 8) + 4;
  const delayAt = (place) => Math.exp(low + ((place - 4) / (width - 8)) * (high - low));
  const most = Math.max(...bins.map(([, rows]) => rows));
  const top = (rows) => (HEIGHT - BOTTOM) * (1 - Math.log1p(rows) / Math.log1p(most) * 0.92);
  const nice = (delay) => (delay < SMALLEST * 1.05 ? 0 : Number(delay.toPrecision(2)));
  const drag = (change) => (event) => {
    event.preventDefault();
    const left = svg.current.getBoundingClientRect().left;
    const move = (moved) => change(nice(delayAt(moved.clientX - left)));
    const stop = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", stop); };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
    event.currentTarget.focus();
  };
  const keys = (value, change) => (event) => {
    const factor = { ArrowRight: 1.1, ArrowUp: 1.1, ArrowLeft: 1 / 1.1, ArrowDown: 1 / 1.1, PageUp: 2, PageDown: 0.5 }[event.key];
    if (!factor && event.key !== "Home") return;
    event.preventDefault();
    change(event.key === "Home" ? 0 : nice(Math.max(SMALLEST, value) * factor));
  };
  const setEnd = (end) => onLateness(Math.max(0, end - lag));
  return html`<div ref=${ref} class="chart"><svg ref=${svg} width=${width} height=${HEIGHT} style=${{ touchAction: "none" }}>
    <g aria-hidden="true">${bins.map(([bound, rows]) => {
      const right = x(bound), left = Math.max(0, x(bound / 1.1));
      const fill = bound <= lag ? "done" : bound <= lag + lateness ? "owed" : "failed";
      return html`<rect key=${bound} x=${left} y=${top(rows)} width=${Math.max(2, right - left - 0.5)} height=${HEIGHT - BOTTOM - top(rows)} fill=${`var(--${fill})`}><title>${`up to ${duration(bound)}: ${number(rows)} rows`}</title></rect>`;
    })}
    <line class="axis" x1="0" x2=${width} y1=${HEIGHT - BOTTOM} y2=${HEIGHT - BOTTOM} />
    ${BOUNDS.filter((bound) => x(bound) < width - 10).map((bound) => html`<g key=${bound}><line class="axis" x1=${x(bound)} x2=${x(bound)} y1=${HEIGHT - BOTTOM} y2=${HEIGHT - BOTTOM + 4} />
      <text x=${x(bound)} y=${HEIGHT - 4} text-anchor=${x(bound) < 20 ? "start" : "middle"}>${duration(bound)}</text></g>`)}</g>
    <${Handle} x=${x(lag)} label="Lag" value=${lag} y=${14} onDrag=${drag(onLag)} onKey=${keys(lag, onLag)} width=${width} />
    <${Handle} x=${x(lag + lateness)} label="Allowed lateness" value=${lateness} y=${30} onDrag=${drag(setEnd)} onKey=${keys(lateness, onLateness)} width=${width} dashed=${true} />
  </svg></div>`;
}
// The grip of the lag is left of its line and that of the allowed lateness right of it: both lines may be one.
function Handle({ x, label, value, y, onDrag, onKey, width, dashed }) {
  const end = x > width - 170;
  return html`<g role="slider" tabindex="0" aria-label=${label} aria-valuemin="0" aria-valuemax="31536000" aria-valuenow=${value / 1e6} aria-valuetext=${duration(value)}
    onPointerDown=${onDrag} onKeyDown=${onKey} style=${{ cursor: "ew-resize" }}>
    <rect x=${dashed ? x : x - 18} y="0" width="18" height=${HEIGHT - BOTTOM} fill="transparent" />
    <line x1=${x} x2=${x} y1="0" y2=${HEIGHT - BOTTOM} stroke="var(--ink)" stroke-width="2" stroke-dasharray=${dashed ? "5 4" : null} />
    <text class="strong" x=${end ? x - 6 : x + 6} y=${y} text-anchor=${end ? "end" : "start"}>${`${label} ${duration(value)}`}</text></g>`;
}
