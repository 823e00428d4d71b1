// The Ingestion view: jobs, and the calendar of one.
import { bytes, counted, duration, go, html, link, number, route, time, unitText, useView } from "./lib.js";
import { At, Badge, Command, Loaded, Name, Stale, Table } from "./parts.js";
import { Calendar, STATES } from "./calendar.js";

export function Ingestion() {
  const { parts } = route.value;
  return parts.length ? html`<${Job} name=${parts[0]} watermark=${parts[1]} />` : html`<${Jobs} />`;
}

function Jobs() {
  const state = useView("/api/ingestion");
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => html`
    <section class="card"><h1>Ingestion</h1>
      <p class="sentence">${summary(data.jobs)}</p>
      <${Table} caption="Jobs" rows=${data.jobs} rowKey=${(job) => `${job.job}\n${job.watermark}`} empty="No job has run with this store, and no job file was given with --job." columns=${[
        ["Job", (job) => html`<a href=${link("ingestion", [job.job, job.watermark].filter(Boolean))}><${Name} text=${job.job} most=${80} /></a>`, { sort: (job) => job.job }],
        ["State", (job) => html`${job.sentence}${job.problem && html`<pre class="error">${job.problem}</pre>`}`],
        ["Failed", (job) => number(job.states.failed ?? 0), { class: "right", sort: (job) => job.states.failed ?? 0 }],
        ["Owed", (job) => number(job.states.owed ?? 0), { class: "right", sort: (job) => job.states.owed ?? 0 }],
        ["Read up to", (job) => html`<${At} at=${job.high_watermark} />`, { sort: (job) => job.high_watermark }],
      ]} /></section>`}<//>`;
}
function summary(jobs) {
  const failed = jobs.filter((job) => job.states.failed);
  const owed = jobs.filter((job) => job.states.owed);
  if (!jobs.length) return "No jobs.";
  if (failed.length) return `${counted(failed.length, "job")} of ${jobs.length} ${failed.length === 1 ? "has" : "have"} failed reads; ${counted(owed.length, "job")} would read something now.`;
  return owed.length ? `${counted(owed.length, "job")} of ${jobs.length} would read something now; none failed.` : `${counted(jobs.length, "job")}; nothing failed, nothing is owed.`;
}

function Job({ name, watermark }) {
  const { query } = route.value;
  const state = useView(`/api/job?${new URLSearchParams({ name, ...(watermark ? { watermark } : {}) })}`);
  const place = [name, watermark].filter(Boolean);
  const zoom = { scale: query.get("scale") ?? undefined, until: query.has("until") ? Number(query.get("until")) : undefined };
  const chosen = query.has("unit") ? { unit: query.get("unit"), start: Number(query.get("start")), end: Number(query.get("end") ?? Infinity) } : null;
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => {
    const inside = chosen ? data.cells.filter((cell) => cell.unit === chosen.unit && cell.start >= chosen.start && cell.start <= chosen.end) : [];
    return html`
    <section class="card">
      <p class="small"><a href=${link("ingestion")}>All jobs</a></p>
      <h1><${Name} text=${data.summary.job} most=${160} /></h1>
      <p class="sentence large">${data.summary.sentence}</p>
      <p class="quiet small">Watermark ${data.summary.watermark}, read up to ${time(data.summary.high_watermark)}.
        ${data.summary.running_since ? ` A run is in progress since ${time(data.summary.running_since)}.` : ""}</p>
      ${data.summary.problem && html`<pre class="error">${data.summary.problem}</pre>`}
      ${data.warnings.map((text) => html`<div class="banner" key=${text}><p>${text}</p></div>`)}
    </section>
    <section class="card"><h2>Calendar</h2>
      ${data.total_cells > data.cells.length && html`<p class="small quiet">The newest ${number(data.cells.length)} of ${number(data.total_cells)} cells.</p>`}
      <${Calendar} cells=${data.cells} omissions=${data.omissions} chosen=${chosen} ...${zoom}
        onZoom=${(next) => go("ingestion", place, { scale: next.scale, until: next.until })}
        onChoose=${(unit, cells) => go("ingestion", place, { ...zoom, unit, start: cells[0].start, end: cells.at(-1).start })} />
    </section>
    ${chosen && html`<section class="card" aria-live="polite"><h2>${unitText(chosen.unit) === "all" ? "Partition" : html`<${Name} text=${unitText(chosen.unit)} />`}</h2>
      ${inside.length === 0 && html`<p class="empty">This cell is no longer in the calendar.</p>`}
      ${inside.length === 1 && html`<${CellFacts} cell=${inside[0]} />`}
      ${inside.length > 1 && html`<${Table} caption=${`${inside.length} partitions`} rows=${inside} columns=${[
        ["Partition", (cell) => html`<a href=${link("ingestion", place, { ...zoom, unit: cell.unit, start: cell.start, end: cell.start })}>${time(cell.start)} to ${time(cell.end)}</a>`],
        ["State", (cell) => html`<${Badge} state=${cell.state} />`, { sort: (cell) => cell.state }],
        ["Reason", (cell) => cell.reason],
        ["Rows", (cell) => number(cell.last?.rows), { class: "right", sort: (cell) => cell.last?.rows }],
      ]} />`}</section>`}
    <section class="card"><h2>Runs</h2>
      <${Table} caption="The newest runs" rows=${data.runs} rowKey=${(run) => run.id} empty="No run is recorded." columns=${[
        ["Started", (run) => html`<${At} at=${run.started_at} />`],
        ["State", (run) => html`<${Badge} state=${{ succeeded: "done", failed: "failed", running: "grace" }[run.state] ?? "waiting"} text=${run.state} />`],
        ["Took", (run) => (run.ended_at ? duration(run.ended_at - run.started_at) : "")],
        ["Units", (run) => `${run.succeeded} succeeded${run.failed ? `, ${run.failed} failed` : ""}${run.interrupted ? `, ${run.interrupted} interrupted` : ""}`],
        ["Rows", (run) => number(run.rows), { class: "right" }],
        ["Run", (run) => html`<code>${run.id.slice(0, 12)}</code>`],
      ]} /></section>`;
  }}<//>`;
}

function CellFacts({ cell }) {
  const last = cell.last;
  return html`<p class="sentence"><${Badge} state=${cell.state} text=${STATES[cell.state]} /></p>
    <dl class="facts">
      <dt>Reason</dt><dd>${cell.reason}</dd>
      <dt>Partition</dt><dd>${time(cell.start, { date: true })} to ${time(cell.end, { date: true })}</dd>
      <dt>Read up to</dt><dd>${cell.high_watermark === null ? "no successful read" : time(cell.high_watermark, { date: true })}</dd>
      ${cell.low !== null && html`<dt>Next read</dt><dd>from ${time(cell.low, { date: true })}${cell.high === null ? "" : ` to ${time(cell.high, { date: true })}`}</dd>`}
      <dt>Attempts</dt><dd>${last ? number(last.attempts) : "none recorded"}</dd>
      ${last && html`<dt>Last attempt</dt><dd>${last.state} at ${time(last.ended_at, { date: true })} after ${duration(last.ended_at - last.started_at)}</dd>
        <dt>Rows</dt><dd>${number(last.rows)} (${bytes(last.bytes)})</dd>`}
    </dl>
    ${last?.error && html`<pre class="error">${last.error}</pre>`}
    ${cell.command && html`<h3 style=${{ margin: ".8rem 0 .3rem" }}>The command that reads it</h3><${Command} text=${cell.command} />`}`;
}
