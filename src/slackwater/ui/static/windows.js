// The Windows view: open windows by end on the time axis, and those that closed.
import { bytes, counted, duration, html, link, local, number, padded, route, time, useView, useWidth } from "./lib.js";
import { At, Badge, Field, Legend, Loaded, Stale, Table } from "./parts.js";
import { Axis } from "./ladder.js";
import { QueryHead } from "./now.js";
import { Pick } from "./pick.js";

export function Windows() {
  const { parts } = route.value;
  return parts.length ? html`<${Query} name=${parts[0]} />` : html`<${Pick} view="windows" title="Windows" text="Choose a query to see its windows." />`;
}

function Query({ name }) {
  const { query } = route.value;
  const operator = query.get("operator"), chosen = query.has("end") ? Number(query.get("end")) : null;
  const state = useView(`/api/windows?${new URLSearchParams({ name, ...(operator ? { operator } : {}) })}`);
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => {
    const own = (end) => link("windows", [name], { operator, end });
    const several = data.operators.length > 1;
    const found = chosen === null ? [] : [...data.open, ...data.closed].filter((window) => window.end === chosen);
    return html`<${QueryHead} summary=${data.summary} view="windows" />
    <section class="card"><div class="row spread"><h2>${counted(data.open.length, "open window")} by end</h2>
      ${several && html`<${Field} label="Operator"><select value=${operator ?? ""} onChange=${(event) => { location.hash = link("windows", [name], { operator: event.target.value }); }}>
        <option value="">all</option>${data.operators.map((id) => html`<option key=${id} value=${id} selected=${id === operator}>${id}</option>`)}</select><//>`}</div>
      <p class="quiet small">The watermark is at ${time(data.watermark)}. A window fires when it reaches the end of the window, and closes after the allowed lateness.${data.left_out ? ` ${counted(data.left_out, "more window")} not listed.` : ""}</p>
      ${data.open.length ? html`<${Strip} windows=${data.open} watermark=${data.watermark} chosen=${chosen} />` : html`<p class="empty">No window is open${data.summary.open_windows ? ", or the query does not report single windows" : ""}.</p>`}</section>
    ${found.map((window) => html`<section class="card" key=${window.operator} aria-live="polite"><h2>Window ${time(window.start)} to ${time(window.end)}</h2>
      <p class="sentence">${local(window.closes)}</p><${Facts} window=${window} /></section>`)}
    <section class="card"><h2>Open</h2><${Table} caption="By end" rows=${data.open} rowKey=${(window) => `${window.operator}\n${window.end}`} chosen=${(window) => window.end === chosen} empty="None." columns=${[
      ["Window", (window) => html`<a class="nowrap mono" href=${own(window.end)}>${time(window.start)} to ${time(window.end)}</a>`, { sort: (window) => window.end }],
      ["State", (window) => html`<${Badge} state=${window.owes_pane ? "owed" : "done"} text=${window.owes_pane ? "owes a pane" : "has fired"} />`],
      ["Closes", (window) => local(window.closes), { class: "long" }],
      ["Keys", (window) => number(window.keys), { class: "right", sort: (window) => window.keys }],
      ["Size", (window) => bytes(window.bytes), { class: "right", sort: (window) => window.bytes }],
      ["Panes so far", panes],
      ...(several ? [["Operator", (window) => window.operator]] : []),
    ]} /></section>
    <section class="card"><h2>Recently closed</h2><${Table} caption="Newest first" rows=${data.closed} most=${30} rowKey=${(window) => `${window.operator}\n${window.end}`} chosen=${(window) => window.end === chosen} empty="No window has closed yet." columns=${[
      ["Window", (window) => html`<a class="nowrap mono" href=${own(window.end)}>${time(window.start)} to ${time(window.end)}</a>`, { sort: (window) => window.end }],
      ["Closed", (window) => html`<${At} at=${window.closed} />`, { sort: (window) => window.closed }],
      ["After its end", (window) => duration(window.closed - window.end), { class: "right", sort: (window) => window.closed - window.end }],
      ["Early", (window) => number(window.early), { class: "right", sort: (window) => window.early }],
      ["On time", (window) => number(window.on_time), { class: "right", sort: (window) => window.on_time }],
      ["Late", (window) => number(window.late), { class: "right", sort: (window) => window.late }],
      ["Retractions", (window) => number(window.retractions), { class: "right", sort: (window) => window.retractions }],
      ...(several ? [["Operator", (window) => window.operator]] : []),
    ]} /></section>`;
  }}<//>`;
}
function panes(window) {
  const counts = [["early", window.early], ["on time", window.on_time], ["late", window.late], ["retracted", window.retractions]].filter(([, count]) => count);
  return counts.map(([text, count]) => `${number(count)} ${text}`).join(", ") || "none";
}
function Facts({ window }) {
  return html`<dl class="facts"><dt>Keys</dt><dd>${window.keys === null ? "not known" : number(window.keys)}</dd><dt>Size</dt><dd>${window.bytes === null ? "not known" : bytes(window.bytes)}</dd>
    <dt>Panes</dt><dd>${panes(window)}</dd><dt>First seen</dt><dd>${time(window.opened, { date: true })}</dd><dt>Operator</dt><dd>${window.operator}</dd></dl>`;
}

const ROW = 18, HEAD = 26, MOST = 40;
function Strip({ windows, watermark, chosen }) {
  const [ref, width] = useWidth();
  const shown = windows.slice(0, MOST);
  const finite = (at) => Math.abs(at) < 9e18;
  const times = [...shown.flatMap((window) => [window.start, window.end, window.closes_at]), watermark].filter((at) => at !== null && finite(at));
  const [low, high] = padded(Math.min(...times), Math.max(...times));
  const x = (at) => Math.max(0, Math.min(width, ((at - low) / (high - low)) * width));
  const height = HEAD + shown.length * ROW + 6;
  return html`<div ref=${ref} class="chart"><svg width=${width} height=${height} role="img" aria-label=${`${windows.length} open windows on the event-time axis; the tables below list them`}>
    <${Axis} low=${low} high=${high} x=${x} width=${width} y=${8} height=${HEAD} />
    ${shown.map((window, index) => {
      const y = HEAD + index * ROW + 3, from = x(window.start), to = x(window.end), gone = x(finite(window.closes_at) ? window.closes_at : high);
      return html`<g key=${`${window.operator}\n${window.end}`}>
        <rect x=${from} y=${y} width=${Math.max(3, to - from)} height=${ROW - 6} rx="3" fill=${window.owes_pane ? "var(--owed)" : "var(--done)"} stroke=${window.end === chosen ? "var(--ink)" : "none"} stroke-width="2" />
        <rect x=${to} y=${y + 3} width=${Math.max(0, gone - to)} height=${ROW - 12} fill="var(--waiting)" />
        <title>${`${time(window.start)} to ${time(window.end)}: ${local(window.closes)}`}</title></g>`;
    })}
    ${watermark !== null && finite(watermark) && html`<line class="held" x1=${x(watermark)} x2=${x(watermark)} y1="8" y2=${height} />`}
  </svg></div>
  <${Legend} items=${[["owed", "owes a pane"], ["done", "has fired"], ["waiting", "allowed lateness"], ["failed", "watermark (line)"]]} />
  ${windows.length > MOST && html`<p class="quiet small">The picture shows the first ${MOST}.</p>`}`;
}
