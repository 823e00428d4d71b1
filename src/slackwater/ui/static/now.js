// The Now view: all queries, and why the watermark of one is where it is.
import { useState } from "preact/hooks";
import { ago, bytes, counted, duration, html, link, local, number, route, shorten, time, useLast, useView } from "./lib.js";
import { At, Badge, Loaded, Name, Segmented, Stale, Swatch, Table } from "./parts.js";
import { Ladder, colourOf } from "./ladder.js";
import { Lines } from "./lines.js";

export function Now() {
  const { parts } = route.value;
  return parts.length ? html`<${Query} key=${parts[0]} name=${parts[0]} />` : html`<${Queries} />`;
}

function Queries() {
  const state = useView("/api/now");
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => html`
    <section class="card"><h1>Now</h1>
      ${data.queries.length === 0 && html`<p class="empty">No query has reported to this store. Start one with <code>sw.session(monitor="…")</code>, or set <code>SLACKWATER_STORE</code>.</p>`}
      ${data.queries.slice(0, 12).map((query) => html`<p key=${query.id} class="sentence" style=${{ margin: ".5rem 0" }}>
        <${Swatch} state=${healthOf(query)} /> <a href=${link("now", [query.id])}>${shorten(sentenceOf(query), 600)}</a></p>`)}</section>
    ${data.queries.length > 0 && html`<section class="card"><h2>Queries</h2><${Table} caption=${counted(data.queries.length, "query", "queries")} rows=${data.queries} rowKey=${(query) => query.id} columns=${[
      ["Query", (query) => html`<a href=${link("now", [query.id])}><${Name} text=${query.title} most=${60} /></a>`, { sort: (query) => query.title }],
      ["State", (query) => html`<${Badge} state=${healthOf(query)} text=${stateText(query)} />`, { sort: stateText }],
      ["Watermark", (query) => html`<${At} at=${query.watermark} />`, { sort: (query) => query.watermark }],
      ["Behind", (query) => (query.lag === null ? "" : duration(query.lag)), { class: "right", sort: (query) => query.lag }],
      ["Open windows", (query) => number(query.open_windows), { class: "right", sort: (query) => query.open_windows }],
      ["Dropped rows", (query) => number(query.dropped), { class: "right", sort: (query) => query.dropped }],
      ["Origins", (query) => Object.entries(query.origins).map(([status, count]) => `${number(count)} ${status}`).join(", ")],
      ["Last report", (query) => ago(query.updated), { sort: (query) => query.updated }],
    ]} /></section>`}`}<//>`;
}
// Neither the name of the query nor the text of its error is ours: their times stay as they are.
export function sentenceOf({ sentence, title, error }) {
  const end = error ? sentence.length - error.length : sentence.length;
  return sentence.slice(0, title.length) + local(sentence.slice(title.length, end)) + sentence.slice(end);
}
export function healthOf(query) {
  if (query.error) return "failed";
  if (!query.running) return "idle";
  return query.age > 60e6 || query.origins.silent || query.origins.gap ? "owed" : "active";
}
function stateText(query) {
  if (query.error) return "failed";
  if (!query.running) return "stopped";
  return query.age > 60e6 ? "no report" : "running";
}

// The header that the views of one query share: its sentence, and links to its other views.
export function QueryHead({ summary, view, children }) {
  const views = [["now", "Now"], ["windows", "Windows"], ["late", "Late"]];
  return html`<section class="card">
    <div class="row spread"><p class="small"><a href=${link("now")}>All queries</a></p>
      <nav class="row small" aria-label="Views of this query">${views.map(([name, text]) => (name === view ? html`<strong key=${name} aria-current="page">${text}</strong>` : html`<a key=${name} href=${link(name, [summary.id])}>${text}</a>`))}</nav></div>
    <h1 class="sentence large">${shorten(sentenceOf(summary), 2000)}</h1>
    <p class="quiet small">Last report ${time(summary.updated)} (${ago(summary.updated)}).${children}</p>
    ${summary.error && html`<pre class="error">${summary.error}</pre>`}</section>`;
}

function Query({ name }) {
  const { query } = route.value;
  const operator = query.get("operator"), key = query.get("key");
  const state = useView(`/api/query?${new URLSearchParams({ name, ...(operator ? { operator } : {}), ...(key ? { key } : {}) })}`);
  const [page, setPage] = useState({ text: query.get("filter") ?? "", order: query.get("sort") ?? "behind", offset: 0 });
  const origins = useLast(useView(`/api/origins?${new URLSearchParams({ name, ...(operator ? { operator } : {}), ...page, limit: PAGE })}`), `${name}\n${operator}`);
  // Typing replaces the address instead of adding to the history, and the address leads to the same origins.
  const change = (changed) => {
    const next = { ...page, ...changed };
    setPage(next);
    history.replaceState(null, "", link("now", [name], { operator, key, filter: next.text || null, sort: next.order === "behind" ? null : next.order }));
  };
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => {
    const chosen = data.operators.find((each) => each.id === data.operator);
    const source = data.operators.find((each) => each.id === origins?.operator) ?? chosen;
    return html`
    <${QueryHead} summary=${data.summary} view="now"> Batch ${number(data.batch)}${data.duration === null ? "" : ` took ${duration(data.duration)}`}, ${counted(data.rows ?? 0, "row")}; state ${bytes(data.state_bytes)}.${data.lost ? ` ${counted(data.lost, "report")} could not be written.` : ""}<//>
    ${data.operators.length > 1 && html`<section class="card"><h2>Lag along the chain</h2>
      <p class="quiet small">How far each operator is behind the clock, and which part it inherits from the operators before it.</p>
      <${Chain} operators=${data.operators} chosen=${data.operator} name=${name} /></section>`}
    ${chosen && html`<section class="card"><h2>${data.operators.length > 1 ? `Origins of operator ${source.id}` : "Origins"}</h2>
      <p class="quiet small name">${local(source.text)}</p>
      <${Origins} operator=${source} data=${origins} page=${page} onChange=${change} /></section>
      ${chosen.inputs.length > 0 && html`<section class="card"><h2>Inputs</h2><${Watermarks} rows=${chosen.inputs} operator=${chosen} caption="The watermark of each input" /></section>`}
      ${chosen.keys.length > 1 && html`<section class="card"><h2>Watermark keys</h2><${Watermarks} rows=${chosen.keys} operator=${chosen} caption="The watermark of each event time" /></section>`}
      <section class="card"><h2>Lag over time</h2>
        ${chosen.keys.length > 1 && html`<${Segmented} label="Watermark key" options=${chosen.keys.map((each) => [each.name, each.name])} value=${data.key} onChange=${(value) => { location.hash = link("now", [name], { operator, key: value }); }} />`}
        <${Lag} history=${data.history} /></section>
      <section class="card"><h2>Who held it back</h2><${Table} caption=${data.operators.length > 1 ? `Operator ${data.held_operator}, newest first` : "Newest first"} rows=${data.holders} most=${15} empty="Nothing is recorded yet." columns=${[
        ["From", (span) => html`<${At} at=${span.at} />`, { sort: (span) => span.at }],
        ["For", (span) => duration(span.lasted), { class: "right", sort: (span) => span.lasted }],
        ["Held by", (span) => html`<${Name} text=${span.held_by ?? "nothing"} most=${80} />`, { sort: (span) => span.held_by ?? "" }],
        ["Reason", (span) => span.reason, { sort: (span) => span.reason }],
        ["Watermark", (span) => html`<span class="nowrap mono">${time(span.watermark)}${span.reached === span.watermark ? "" : ` to ${time(span.reached)}`}</span>`],
        ...(chosen.keys.length > 1 ? [["Key", (span) => span.key]] : []),
      ]} /></section>
      <div class="grid2"><section class="card"><h2>Counters</h2><${Table} caption="Since the query was first started; those that are 0 are left out" rows=${Object.entries(chosen.totals).filter(([, count]) => count)} empty="All are 0." columns=${[
        ["Counter", ([title]) => title.replace(/_/g, " ")], ["Count", ([, count]) => number(count), { class: "right" }]]} /></section>
      ${Object.keys(chosen.buffers).length > 0 && html`<section class="card"><h2>Buffered rows</h2><${Table} caption="Rows that wait for the other side" rows=${Object.entries(chosen.buffers)} columns=${[
        ["Buffer", ([title]) => title], ["Rows", ([, size]) => number(size.rows), { class: "right" }], ["Size", ([, size]) => bytes(size.bytes), { class: "right" }]]} /></section>`}</div>`}`;
  }}<//>`;
}

const PAGE = 60;
function Origins({ operator, data, page, onChange }) {
  if (!data) return html`<p class="empty" role="status">Loading…</p>`;
  if (!data.total) {
    return html`<${Watermarks} rows=${operator.keys} operator=${operator} caption="The watermark of each event time" />
      <p class="empty">Single origins are not in the reports of this query.</p>`;
  }
  return html`
    <ul class="legend" style=${{ marginBottom: ".5rem" }}>${Object.entries(data.counts).map(([status, count]) => html`<li key=${status}><${Badge} state=${colourOf(status)} text=${`${number(count)} ${status}`} /></li>`)}</ul>
    <${Ladder} filterable=${data.total > 8} caption=${`Origins on the event-time axis${data.left_out ? `: ${number(data.left_out)} of ${number(data.total)} are left out, neither the slowest nor the fastest` : ""}`}
      columns=${["Since", "Behind"]} lines=${[{ at: data.watermark, kind: "held", text: "watermark" }, { at: data.clock, kind: "now", text: "clock" }]} span=${[data.lowest, data.highest]}
      pages=${{ ...page, offset: data.offset, matching: data.matching, total: data.total, size: PAGE, onChange }}
      rows=${data.origins.map((origin) => ({ key: `${origin.input}\n${origin.name}`, label: origin.input ? `${origin.name} (${origin.input})` : origin.name, state: origin.status, at: origin.watermark,
        extra: [origin.gap ?? (origin.since === null ? "" : time(origin.since)), origin.watermark === null || origin.watermark > 9e18 ? "" : duration(data.clock - origin.watermark)] }))} />`;
}

function Watermarks({ rows, operator, caption }) {
  return html`<${Ladder} caption=${caption} columns=${["Held by"]} lines=${[{ at: operator.watermark, kind: "held", text: "watermark" }, { at: operator.now, kind: "now", text: "clock" }]}
    empty="No watermark yet." rows=${rows.map((row) => ({ key: row.name, label: row.name, state: row.idle ? "idle" : { gap: "gap", idle: "idle", done: "done", "never spoke": "silent" }[row.reason] ?? "active", at: row.watermark,
      extra: [row.held_by ? `${row.held_by} (${row.reason})` : row.reason] }))} />`;
}

function Chain({ operators, chosen, name }) {
  const most = Math.max(1, ...operators.map((operator) => operator.lag ?? 0));
  return html`<${Table} caption="The last operator first" rows=${operators} rowKey=${(operator) => operator.id} chosen=${(operator) => operator.id === chosen} columns=${[
    ["Operator", (operator) => html`<a href=${link("now", [name], { operator: operator.id })} aria-current=${operator.id === chosen ? "true" : null}>${operator.id}</a>`],
    ["Watermark", (operator) => html`<${At} at=${operator.watermark} />`],
    ["Lag", (operator) => html`<span class="nowrap">${operator.lag === null ? (operator.ended ? "ended" : "unknown") : duration(operator.lag)}</span>`, { class: "right" }],
    ["Own", (operator) => (operator.local_lag === null ? "" : duration(operator.local_lag)), { class: "right" }],
    ["Inherited", (operator) => (operator.inherited_lag === null ? "none" : duration(operator.inherited_lag)), { class: "right" }],
    ["Inherited and own", (operator) => html`<svg width="220" height="14" class="hide-narrow" aria-hidden="true"><rect width=${(220 * Math.max(0, operator.inherited_lag ?? 0)) / most} height="14" rx="3" fill="var(--waiting)" />
      <rect x=${(220 * Math.max(0, operator.inherited_lag ?? 0)) / most} width=${(220 * Math.max(0, operator.local_lag ?? 0)) / most} height="14" rx="3" fill="var(--owed)" /></svg>`],
    ["Held by", (operator) => html`<${Name} text=${operator.held_by_operator ? `operator ${operator.held_by_operator}` : operator.held_by ?? operator.reason} most=${70} />`],
  ]} />`;
}

function Lag({ history }) {
  const spans = history.filter((span) => span.watermark > -9e18 && span.reached < 9e18);
  if (!spans.length) return html`<p class="empty">No history yet.</p>`;
  const points = new Map();
  for (const span of spans) {
    points.set(span.at / 1e6, (span.at - span.watermark) / 1e6);
    points.set(span.until / 1e6, (span.until - span.reached) / 1e6);
  }
  const sorted = [...points].sort((a, b) => a[0] - b[0]);
  const last = spans.at(-1);
  return html`<${Lines} x=${sorted.map(([at]) => at)} y=${sorted.map(([, lag]) => lag)} unit="behind"
    label=${`The lag of the watermark from ${time(spans[0].at, { date: true })} to ${time(last.until, { date: true })}; now ${duration(last.until - last.reached)}. The table below lists what held it back.`} />`;
}
