// The Streams view: all streams, and the timeline of one.
import { ago, bytes, counted, duration, html, link, local, number, route, time, useView } from "./lib.js";
import { At, Badge, Loaded, Name, Stale, Table } from "./parts.js";
import { Ladder } from "./ladder.js";
import { River, segmentName } from "./river.js";

export function StreamsView() {
  const { parts } = route.value;
  return parts.length ? html`<${Stream} name=${parts[0]} />` : html`<${List} />`;
}

function List() {
  const state = useView("/api/streams");
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => html`<section class="card"><h1>Streams</h1>
    <${Table} caption=${counted(data.streams.length, "stream")} rows=${data.streams} rowKey=${(stream) => stream.name} empty="The store has no streams." columns=${[
      ["Stream", (stream) => html`<a href=${link("streams", [stream.name])}><${Name} text=${stream.name} most=${80} /></a>`, { sort: (stream) => stream.name }],
      ["State", (stream) => html`<${Name} text=${local(stream.sentence)} most=${300} />`],
      ["Segments", (stream) => number(stream.segments), { class: "right", sort: (stream) => stream.segments }],
      ["Events", (stream) => number(stream.events), { class: "right", sort: (stream) => stream.events }],
      ["Size", (stream) => bytes(stream.bytes), { class: "right", sort: (stream) => stream.bytes }],
    ]} /></section>`}<//>`;
}

function Stream({ name }) {
  const state = useView(`/api/stream?${new URLSearchParams({ name })}`);
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => html`
    <section class="card"><p class="small"><a href=${link("streams")}>All streams</a></p>
      <h1><${Name} text=${data.name} most=${160} /></h1><p class="sentence large">${local(data.sentence)}</p>
      <p class="quiet small">Marks are made every ${duration(data.period)} and wait at most ${duration(data.timeout)} for a writer. Created ${time(data.created_at)}, epoch ${data.epoch}.</p></section>
    <section class="card"><h2>Segments over time</h2><p class="quiet small">Keys from top to bottom; stronger colour for more events; a vertical line for each mark.</p>
      <${River} stream=${data} /></section>
    <section class="card"><h2>Writers</h2>
      <${Ladder} caption="The time that each writer has noted" columns=${["Behind since"]} filterable=${data.writers.length > 20} empty="No writer has noted a time."
        lines=${[{ at: data.mark, kind: "mark", text: "mark" }]}
        rows=${data.writers.map((writer) => ({ key: writer.writer, label: writer.writer, state: writer.state, at: writer.time,
          extra: [writer.behind_since === null ? "" : `${time(writer.behind_since)} (${ago(writer.behind_since)})${writer.dropped_at === null ? "" : `, will be dropped at ${time(writer.dropped_at)}`}`] }))} /></section>
    <section class="card"><h2>Reader groups</h2>
      <${Ladder} caption="The time window of each group" columns=${["Readers", "Behind"]} empty="No reader group has been made."
        lines=${[{ at: data.mark, kind: "mark", text: "mark" }]}
        rows=${data.groups.map((group) => ({ key: group.group, label: group.group, state: group.removed ? "events removed" : group.behind ? "behind" : "up to date", at: group.lower,
          from: group.lower, to: group.upper, extra: [group.readers.length ? group.readers.join(", ") : "none", `${counted(group.behind, "event")}${group.removed ? `, ${number(group.removed)} of them removed` : ""}`] }))} /></section>
    <section class="card"><h2>All segments</h2><${Table} caption=${counted(data.segments.length, "segment")} rows=${data.segments} rowKey=${(segment) => segment.id} columns=${[
      ["Segment", segmentName, { sort: (segment) => segment.id }],
      ["Keys", (segment) => `${segment.low.toFixed(3)} to ${segment.high.toFixed(3)}`, { sort: (segment) => segment.low }],
      ["State", (segment) => html`<${Badge} state=${segment.sealed_at === null ? "active" : "idle"} text=${segment.sealed_at === null ? "open" : "sealed"} />`],
      ["Created", (segment) => html`<${At} at=${segment.created_at} />`],
      ["Sealed", (segment) => (segment.sealed_at === null ? "" : html`<${At} at=${segment.sealed_at} />`)],
      ["Replaced", (segment) => data.segments.filter((other) => segment.predecessors.includes(other.id)).map(segmentName).join(", ")],
      ["Events", (segment) => number(segment.events), { class: "right", sort: (segment) => segment.events }],
      ["Size", (segment) => bytes(segment.bytes), { class: "right" }],
    ]} /></section>
    <section class="card"><h2>Marks</h2><${Table} caption="The newest marks, newest first" rows=${[...data.marks].reverse()} most=${20} rowKey=${(mark) => mark.number} empty="No mark yet." columns=${[
      ["Mark", (mark) => number(mark.number)],
      ["Every writer had noted", (mark) => html`<${At} at=${mark.lower} />`],
      ["None had noted more than", (mark) => html`<${At} at=${mark.upper} />`],
      ["Made", (mark) => html`<${At} at=${mark.at} />`],
    ]} /></section>`}<//>`;
}
