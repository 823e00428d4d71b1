// The calendar of a job: units down, time across, a cell for what has become of each.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { fieldsOf, html, number, shorten, unitText, useWidth, zone } from "./lib.js";
import { Field, Legend, Segmented } from "./parts.js";

export const STATES = {
  done: "done", owed: "owed: the next run reads it", failed: "failed", waiting: "waiting", "left out": "left out", grace: "read again in grace",
};
const WORST = ["failed", "owed", "grace", "waiting", "left out", "done"];
const SCALES = [["hour", "Hours"], ["day", "Days"], ["week", "Weeks"], ["month", "Months"], ["year", "Years"]];
const LENGTH = { hour: 36e8, day: 864e8, week: 6048e8, month: 2592e9, year: 31536e9 };
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const ROW = 22, HEAD = 36, UNITS = 40;

function made(year, month, day, hour) {
  const date = zone.value === "utc" ? new Date(Date.UTC(2000, month, day, hour)) : new Date(2000, month, day, hour);
  if (zone.value === "utc") date.setUTCFullYear(year, month, day); else date.setFullYear(year, month, day);
  return date.getTime() * 1000;
}
function floor(at, scale, step = 0) {
  const [year, month, day, hour] = fieldsOf(at);
  if (scale === "hour") return Math.floor(at / 36e8) * 36e8 + step * 36e8;
  if (scale === "day") return made(year, month - 1, day + step, 0);
  if (scale === "week") {
    const start = made(year, month - 1, day, 0);
    const weekday = (new Date(start / 1000)[zone.value === "utc" ? "getUTCDay" : "getDay"]() + 6) % 7;
    return made(year, month - 1, day - weekday + step * 7, 0);
  }
  return scale === "month" ? made(year, month - 1 + step, 1, 0) : made(year + step, 0, 1, 0);
}
function labels(at, scale) {
  const [year, month, day, hour] = fieldsOf(at);
  const pad = (value) => String(value).padStart(2, "0");
  if (scale === "hour") return [`${year}-${pad(month)}-${pad(day)}`, pad(hour)];
  if (scale === "day" || scale === "week") return [`${MONTHS[month - 1]} ${year}`, String(day)];
  return scale === "month" ? [String(year), MONTHS[month - 1]] : ["", String(year)];
}
function fitting(cells, columns) {
  if (!cells.length) return "day";
  let low = Infinity, high = -Infinity, shortest = Infinity;
  for (const cell of cells) { low = Math.min(low, cell.start); high = Math.max(high, cell.end); shortest = Math.min(shortest, cell.end - cell.start); }
  const fits = SCALES.map(([scale]) => scale).filter((scale) => (high - low) / LENGTH[scale] <= columns);
  return fits.find((scale) => LENGTH[scale] >= shortest * 0.9) ?? fits[0] ?? "year";
}

export function Calendar({ cells, omissions, chosen, onChoose, scale: wantedScale, until, onZoom }) {
  const [ref, width] = useWidth();
  const [filter, setFilter] = useState("");
  const [units, setUnits] = useState(UNITS);
  const [focus, setFocus] = useState(null);
  const grid = useRef(null);
  const label = width < 520 ? 84 : 170;
  const wide = wantedScale === "hour" || width < 520 ? 16 : 22;
  const columnsShown = Math.max(4, Math.floor((width - label) / wide));
  const scale = wantedScale ?? fitting(cells, columnsShown);
  const rows = useMemo(() => {
    const found = new Map();
    for (const cell of cells) {
      if (!found.has(cell.unit)) found.set(cell.unit, []);
      found.get(cell.unit).push(cell);
    }
    return [...found].map(([unit, own]) => ({ unit, text: unitText(unit), cells: own }))
      .filter((row) => !filter || row.text.toLowerCase().includes(filter.toLowerCase()))
      .sort((a, b) => (a.text < b.text ? -1 : 1));
  }, [cells, filter]);
  const last = cells.reduce((high, cell) => Math.max(high, cell.end), -Infinity);
  const first = cells.reduce((low, cell) => Math.min(low, cell.start), Infinity);
  const end = Math.min(until ?? last, last);
  const columns = useMemo(() => {
    if (!cells.length || !width) return [];
    const found = [];
    for (let at = floor(end - 1, scale); found.length < columnsShown && floor(at, scale, 1) > first; at = floor(at, scale, -1)) found.unshift({ start: at, end: floor(at, scale, 1) });
    return found;
  }, [cells, scale, width, end, zone.value]);
  const shown = rows.slice(0, units);
  const table = useMemo(() => shown.map((row) => bucketed(row.cells, columns)), [shown, columns]);
  useEffect(() => { setFocus(null); }, [scale, end]);
  if (!cells.length) return html`<p class="empty">No partition of this job is recorded or planned.</p>`;
  const height = HEAD + shown.length * ROW;
  const move = (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e6], End: [0, 1e6] }[event.key];
    const [row, column] = focus ?? [0, columns.length - 1];
    if (step) {
      event.preventDefault();
      setFocus([Math.max(0, Math.min(shown.length - 1, row + step[0])), Math.max(0, Math.min(columns.length - 1, column + step[1]))]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const found = table[row]?.[column];
      if (found) onChoose(shown[row].unit, found.cells);
    }
  };
  const left = (column) => label + column * wide;
  let before = null;
  return html`<div>
    <div class="row spread" style=${{ marginBottom: ".5rem" }}>
      <div class="row">
        <${Segmented} label="Zoom" options=${SCALES} value=${scale} onChange=${(value) => onZoom({ scale: value, until })} />
        <div class="segmented" role="group" aria-label="Time range">
          <button type="button" disabled=${!columns.length || columns[0].start <= first} onClick=${() => onZoom({ scale, until: columns[0].end })}>← Earlier</button>
          <button type="button" disabled=${end >= last} onClick=${() => onZoom({ scale, until: Math.min(last, floor(end, scale, Math.max(1, columnsShown - 1))) })}>Later →</button>
        </div></div>
      ${rows.length > 8 || filter ? html`<${Field} label="Filter units"><input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /><//>` : null}
    </div>
    <div ref=${ref} class="chart">
    <svg ref=${grid} width=${width} height=${height + 4} role="grid" tabindex="0" aria-label="Calendar of units and partitions; arrow keys move, Enter opens"
      aria-activedescendant=${focus && table[focus[0]]?.[focus[1]] ? `cell-${focus[0]}-${focus[1]}` : null} onKeyDown=${move} onBlur=${() => setFocus(null)}>
      <defs>
        <pattern id="cross" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 0l6 6M6 0l-6 6" stroke="var(--card)" stroke-width="1.2" /></pattern>
        <pattern id="slash" width="5" height="5" patternUnits="userSpaceOnUse"><path d="M0 5l5-5" stroke="var(--card)" stroke-width="1.4" /></pattern>
        <pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse"><circle cx="2.5" cy="2.5" r="1.1" fill="var(--card)" /></pattern>
      </defs>
      <g aria-hidden="true">${columns.map((column, index) => {
        const [major, minor] = labels(column.start, scale);
        const isNew = major !== before && major;
        before = major;
        const lastMajor = columns.length - index < 4 && index > 0;
        return html`<g key=${column.start}>${isNew && !lastMajor && html`<text class="strong" x=${left(index)} y="11">${major}</text>`}
          ${(wide >= 22 || index % 2 === 0) && html`<text x=${left(index) + wide / 2} y="28" text-anchor="middle">${minor}</text>`}</g>`;
      })}
      ${omissions.map((each) => {
        const from = columns.findIndex((column) => column.end > each.start), to = columns.findLastIndex((column) => column.start < each.end);
        if (from < 0 || to < from) return null;
        return html`<rect key=${each.start} x=${left(from)} y=${HEAD} width=${(to - from + 1) * wide} height=${shown.length * ROW} fill="var(--line)"><title>${each.reason}</title></rect>`;
      })}</g>
      ${shown.map((row, number_) => html`<g role="row" key=${row.unit}>
        <text role="rowheader" class="strong" x="0" y=${HEAD + number_ * ROW + 15}>${shorten(row.text, width < 520 ? 12 : 26)}<title>${shorten(row.text, 300)}</title></text>
        ${table[number_].map((found, column) => found && !found.continues && html`<${Cell} key=${column} id=${`cell-${number_}-${column}`} found=${found} x=${left(column)} y=${HEAD + number_ * ROW}
          width=${found.span * wide} unit=${row.text} isChosen=${chosen && chosen.unit === row.unit && found.cells.some((cell) => cell.start === chosen.start)}
          onClick=${() => onChoose(row.unit, found.cells)} />`)}</g>`)}
      ${focus && html`<rect class="ring" aria-hidden="true" x=${left(focus[1]) + 1} y=${HEAD + focus[0] * ROW + 1} width=${wide - 2} height=${ROW - 2} rx="4" />`}
    </svg></div>
    ${rows.length > units && html`<p class="small"><button type="button" class="tool" onClick=${() => setUnits(units + UNITS)}>Show ${number(Math.min(UNITS, rows.length - units))} more of ${number(rows.length - units)} units</button></p>`}
    <${Legend} items=${WORST.map((state) => [state, STATES[state]])} />
  </div>`;
}

// For each column the cells that reach into it; a cell over several columns is drawn once, over all of them.
function bucketed(cells, columns) {
  const found = columns.map(() => null);
  if (!columns.length) return found;
  for (const cell of cells) {
    if (cell.end <= columns[0].start || cell.start >= columns.at(-1).end) continue;
    let from = columns.findIndex((column) => column.end > cell.start);
    let to = from;
    while (to + 1 < columns.length && columns[to + 1].start < cell.end) to += 1;
    if (to > from) {
      for (let index = from; index <= to; index += 1) found[index] ??= { cells: [cell], span: 1, continues: index > from };
      if (!found[from].continues) found[from].span = to - from + 1;
      if (!found[from].cells.includes(cell)) found[from].cells.push(cell);
    } else if (found[from]) found[from].cells.push(cell);
    else found[from] = { cells: [cell], span: 1, continues: false };
  }
  return found;
}

function Cell({ id, found, x, y, width, unit, isChosen, onClick }) {
  const state = WORST.find((each) => found.cells.some((cell) => cell.state === each));
  const counts = Object.entries(Object.groupBy(found.cells, (cell) => cell.state)).map(([name, own]) => `${own.length} ${name}`).join(", ");
  const text = `${shorten(unit, 80)}: ${found.cells.length === 1 ? STATES[state] : counts}`;
  const pattern = { failed: "cross", "left out": "slash", grace: "dots", owed: null }[state];
  const box = { x: x + 1, y: y + 1, width: Math.max(2, width - 2), height: ROW - 2, rx: 4 };
  return html`<g role="gridcell" id=${id} aria-label=${text} onClick=${onClick}>
    <rect ...${box} fill=${`var(--${state.replace(/ /g, "-")})`} />
    ${pattern && html`<rect ...${box} fill=${`url(#${pattern})`} />`}
    ${isChosen && html`<rect class="chosen" ...${box} />`}<title>${text}</title></g>`;
}
