// A ladder: rows on one time axis, each with a mark of its state; vertical lines for what they are compared with.
import { useMemo, useState } from "preact/hooks";
import { html, number, padded, ticks, time, useWidth } from "./lib.js";
import { Badge, Field, Name } from "./parts.js";

const HEIGHT = 20;
const HEAD = 34;
export const STATES = {
  active: "active", idle: "idle", silent: "silent", gap: "gap in its sequence", done: "done", holds: "holds the mark back",
  ahead: "ahead", closed: "closed", unknown: "unknown", "never spoke": "never spoke",
};
const COLOURS = { holds: "failed", ahead: "active", closed: "idle", done: "idle", "never spoke": "silent", "events removed": "failed", behind: "owed", "up to date": "active" };
export const colourOf = (state) => COLOURS[state] ?? (["active", "idle", "silent", "gap"].includes(state) ? state : "unknown");

// rows: {key, label, state, at, from?, to?, extra?: [text…]}; lines: [{at, kind, text}]; span: the ends of the axis.
// pages: {text, order, offset, matching, total, size, onChange} if the server filters, sorts and pages the rows.
export function Ladder({ rows, lines = [], caption, columns = [], filterable = false, most = 60, empty, span = [], pages }) {
  const [own, setOwn] = useState({ text: "", order: "behind" });
  const [shown, setShown] = useState(most);
  const [ref, width] = useWidth();
  const wanted = useMemo(() => (pages ? rows : chosenOf(rows, own)), [rows, own]);
  if (!rows.length && !pages) return html`<p class="empty">${empty}</p>`;
  const [low, high] = axisOf(rows, lines, span);
  const x = (at) => Math.max(4, Math.min(width - 4, ((at - low) / (high - low)) * width));
  const { text, order } = pages ?? own;
  const change = (changed) => (pages ? pages.onChange({ offset: 0, ...changed }) : setOwn({ ...own, ...changed }));
  return html`
    ${filterable && html`<div class="row" style=${{ marginBottom: ".4rem" }}>
      <${Field} label="Filter"><input type="search" value=${text} onInput=${(event) => change({ text: event.target.value })} /><//>
      <${Field} label="Sort by"><select value=${order} onChange=${(event) => change({ order: event.target.value })}>
        ${ORDERS.map(([value, title]) => html`<option key=${value} value=${value} selected=${value === order}>${title}</option>`)}</select><//>
      <span class="quiet small" role="status">${number(pages ? pages.matching : wanted.length)} of ${number(pages ? pages.total : rows.length)}</span></div>`}
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}><table class="ladder">
      <caption>${caption}</caption>
      <thead><tr><th scope="col">Name</th><th scope="col">State</th>
        <th scope="col" style=${{ width: "48%", minWidth: "14rem" }}><div ref=${ref}>
          <svg width=${width} height=${HEAD} role="img" aria-label=${`Time axis from ${time(low, { date: true })} to ${time(high, { date: true })}`}>
            <${Axis} low=${low} high=${high} x=${x} width=${width} y=${HEAD - 14} height=${HEAD} />
            ${lines.map((line) => line.at !== null && line.at < 9e18 && html`<g key=${line.text}><line class=${line.kind} x1=${x(line.at)} x2=${x(line.at)} y1="14" y2=${HEAD} />
              <text class="strong" x=${x(line.at)} y="10" text-anchor=${x(line.at) > width / 2 ? "end" : "start"}>${line.text}</text></g>`)}
          </svg></div></th>
        <th scope="col">Time</th>${columns.map((column) => html`<th scope="col" key=${column}>${column}</th>`)}</tr></thead>
      <tbody>${(pages ? wanted : wanted.slice(0, shown)).map((row) => html`<tr key=${row.key}>
        <td>${row.href ? html`<a href=${row.href}><${Name} text=${row.label} most=${60} /></a>` : html`<${Name} text=${row.label} most=${60} />`}</td>
        <td><${Badge} state=${colourOf(row.state)} text=${STATES[row.state] ?? row.state} /></td>
        <td><svg width=${width} height=${HEIGHT} aria-hidden="true">
          ${lines.map((line) => line.at !== null && line.at < 9e18 && html`<line key=${line.text} class=${line.kind} x1=${x(line.at)} x2=${x(line.at)} y1="0" y2=${HEIGHT} />`)}
          <${Mark} row=${row} x=${x} /></svg></td>
        <td class="nowrap mono">${row.from !== undefined ? `${time(row.from)} to ${time(row.to)}` : time(row.at)}</td>
        ${(row.extra ?? []).map((text, index) => html`<td key=${index}>${text}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${!pages && wanted.length > shown && html`<p class="small"><button type="button" class="tool" onClick=${() => setShown(shown + 200)}>Show ${number(Math.min(200, wanted.length - shown))} more of ${number(wanted.length - shown)}</button></p>`}
    ${pages && !pages.matching && html`<p class="empty">No name and no state has this text.</p>`}
    ${pages && pages.matching > pages.size && html`<${Pages} ...${pages} />`}`;
}
const ORDERS = [["behind", "furthest behind"], ["name", "name"], ["state", "state"]];

function chosenOf(rows, { text, order }) {
  const wanted = text.trim().toLowerCase();
  const found = wanted ? rows.filter((row) => row.label.toLowerCase().includes(wanted) || row.state.includes(wanted)) : [...rows];
  const value = order === "name" ? (row) => row.label : order === "state" ? (row) => row.state : (row) => row.at ?? -Infinity;
  return found.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : a.label < b.label ? -1 : 1));
}

function Pages({ offset, matching, size, onChange }) {
  const last = Math.floor((matching - 1) / size) * size;
  const to = (at) => onChange({ offset: Math.max(0, Math.min(last, at)) });
  return html`<nav class="row small" aria-label="Pages" style=${{ marginTop: ".5rem" }}><div class="segmented">
    <button type="button" disabled=${offset === 0} onClick=${() => to(0)}>First</button>
    <button type="button" disabled=${offset === 0} onClick=${() => to(offset - size)}>← Previous</button>
    <button type="button" disabled=${offset >= last} onClick=${() => to(offset + size)}>Next →</button>
    <button type="button" disabled=${offset >= last} onClick=${() => to(last)}>Last</button></div>
    <span class="quiet">${number(offset + 1)} to ${number(Math.min(offset + size, matching))} of ${number(matching)}</span></nav>`;
}

function Mark({ row, x }) {
  const y = HEIGHT / 2;
  const fill = `var(--${colourOf(row.state)})`;
  if (row.from !== undefined) {
    const left = row.from === null ? 4 : x(row.from), right = row.to === null ? x(Infinity) : x(row.to);
    return html`<rect x=${left} y=${y - 5} width=${Math.max(4, right - left)} height="10" rx="4" fill=${fill} />`;
  }
  if (row.at === null) return html`<text x="6" y=${y + 4}>no time yet</text>`;
  const at = row.at >= 9e18 ? x(Infinity) : x(row.at);
  const shape = {
    idle: html`<circle cx=${at} cy=${y} r="5" fill="none" stroke=${fill} stroke-width="2.5" />`,
    closed: html`<circle cx=${at} cy=${y} r="5" fill="none" stroke=${fill} stroke-width="2.5" />`,
    silent: html`<rect x=${at - 5} y=${y - 5} width="10" height="10" fill=${fill} />`,
    holds: html`<rect x=${at - 5} y=${y - 5} width="10" height="10" fill=${fill} />`,
    gap: html`<path d=${`M${at} ${y - 7}l7 7l-7 7l-7-7z`} fill=${fill} />`,
  }[row.state] ?? html`<circle cx=${at} cy=${y} r="5" fill=${fill} />`;
  return html`<line class="axis" x1="0" x2=${at} y1=${y} y2=${y} />${shape}`;
}

function axisOf(rows, lines, span) {
  const times = [...rows.flatMap((row) => [row.at, row.from, row.to]), ...lines.map((line) => line.at), ...span]
    .filter((at) => at !== null && at !== undefined && Math.abs(at) < 9e18);
  if (!times.length) return [0, 1];
  let low = Infinity, high = -Infinity;
  for (const at of times) { if (at < low) low = at; if (at > high) high = at; }
  return padded(low, high);
}

export function Axis({ low, high, x, width, y, height }) {
  const found = ticks(low, high, Math.max(2, Math.floor(width / 80))).filter(({ at }) => x(at) > 14 && x(at) < width - 22);
  return html`<g><line class="axis" x1="0" x2=${width} y1=${y} y2=${y} />
    ${found.map(({ at, text }) => html`<g key=${at}><line class="axis" x1=${x(at)} x2=${x(at)} y1=${y} y2=${y + 4} />
      <text x=${x(at)} y=${y + 14 > height ? height - 1 : y + 14} text-anchor="middle">${text}</text></g>`)}</g>`;
}
