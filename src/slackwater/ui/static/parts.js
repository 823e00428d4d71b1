// Small components that several views use.
import { useState } from "preact/hooks";
import { ago, html, number, shorten, time } from "./lib.js";

export function Swatch({ state }) {
  return html`<span class="swatch" style=${{ background: `var(--${state.replace(/ /g, "-")})` }} aria-hidden="true"></span>`;
}
export function Badge({ state, text }) {
  return html`<span class="badge"><${Swatch} state=${state} />${text ?? state}</span>`;
}
export function Legend({ items }) {
  return html`<ul class="legend">${items.map(([state, text]) => html`<li key=${state}><${Badge} state=${state} text=${text} /></li>`)}</ul>`;
}
export function Name({ text, most }) {
  return html`<span class="name">${shorten(text, most)}</span>`;
}
export function At({ at }) {
  return html`<span class="nowrap mono" title=${at === null ? "" : time(at, { date: true })}>${time(at)}</span>`;
}
export function Command({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard?.writeText(text).then(() => { setCopied(true); setTimeout(() => setCopied(false), 2000); });
  return html`<div class="command"><code>${text}</code>
    <button type="button" class="tool" onClick=${copy}>${copied ? "Copied" : "Copy"}</button></div>`;
}
export function Segmented({ label, options, value, onChange }) {
  return html`<div class="segmented" role="group" aria-label=${label}>${options.map(([key, text]) => html`
    <button type="button" key=${key} aria-pressed=${String(value === key)} onClick=${() => onChange(key)}>${text}</button>`)}</div>`;
}
export function Field({ label, children }) {
  return html`<label class="field"><span>${label}</span>${children}</label>`;
}
// What a view shows instead of, or above, its data.
export function Loaded({ state, children }) {
  if (state.data) return children(state.data);
  if (state.error) return html`<div class="card"><h1>Nothing to show</h1><p class="name">${state.error}</p></div>`;
  return html`<p class="empty" role="status">Loading…</p>`;
}
export function Stale({ state }) {
  if (!state.error || !state.data) return null;
  return html`<div class="banner bad" role="status"><p><strong>Not up to date:</strong> ${state.error}.
    Showing what was read at ${time(state.data.now)} (${ago(state.data.now)}).</p></div>`;
}
// A table whose columns are [title, render, options]; sortable where an option "sort" gives the value.
export function Table({ columns, rows, caption, rowKey, chosen, empty = "none", most = 100 }) {
  const [order, setOrder] = useState(null);
  const [shown, setShown] = useState(most);
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  let sorted = rows;
  if (order) {
    const value = columns[order.column][2].sort;
    sorted = [...rows].sort((a, b) => compare(value(a), value(b)) * order.sign);
  }
  const by = (column) => setOrder((old) => ({ column, sign: old?.column === column ? -old.sign : 1 }));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption>${caption}</caption>
    <thead><tr>${columns.map(([title, , options = {}], index) => html`
      <th key=${title} scope="col" class=${options.class ?? ""} aria-sort=${order?.column === index ? (order.sign > 0 ? "ascending" : "descending") : null}>
        ${options.sort ? html`<button type="button" onClick=${() => by(index)}>${title}${order?.column === index ? (order.sign > 0 ? " ▲" : " ▼") : ""}</button>` : title}
      </th>`)}</tr></thead>
    <tbody>${sorted.slice(0, shown).map((row, index) => html`
      <tr key=${rowKey ? rowKey(row) : index} class=${chosen?.(row) ? "chosen" : ""}>${columns.map(([title, render, options = {}]) => html`
        <td key=${title} class=${options.class ?? ""}>${render(row)}</td>`)}</tr>`)}</tbody>
  </table></div>
  ${rows.length > shown && html`<p class="small"><button type="button" class="tool" onClick=${() => setShown(shown + most)}>
    Show ${number(Math.min(most, rows.length - shown))} more of ${number(rows.length - shown)}</button></p>`}`;
}
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : 1;
}
