// The river: the segments of a stream over time, as they split and merge; marks as verticals.
import { html, number, useWidth } from "./lib.js";
import { Axis } from "./ladder.js";

// A segment is named by its number and the epoch that created it.
export const segmentName = (segment) => `${segment.number}.${segment.epoch}`;

const HEIGHT = 240, BOTTOM = 24, LEFT = 34;

export function River({ stream }) {
  const [ref, width] = useWidth();
  const low = Math.min(...stream.segments.map((segment) => segment.created_at));
  const high = Math.max(stream.now, low + 1e6);
  const inner = Math.max(10, width - LEFT);
  const x = (at) => LEFT + ((at - low) / (high - low)) * inner;
  const y = (share) => 6 + share * (HEIGHT - BOTTOM - 10);
  const most = Math.max(1, ...stream.segments.map((segment) => segment.events));
  const open = stream.segments.filter((segment) => segment.sealed_at === null).length;
  return html`<div ref=${ref} class="chart"><svg width=${width} height=${HEIGHT} role="img"
    aria-label=${`${stream.segments.length} segments, ${open} of them open, in ${stream.epoch + 1} epochs; ${stream.marks.length} marks. The tables below list them.`}>
    ${[0, 0.5, 1].map((share) => html`<text key=${share} x="0" y=${y(share) + (share === 1 ? 0 : 9)}>${share}</text>`)}
    ${stream.segments.map((segment) => {
      const from = x(segment.created_at), to = x(segment.sealed_at ?? high);
      const top = y(segment.low), bottom = y(segment.high);
      const strength = 0.28 + 0.72 * (segment.events / most);
      return html`<g key=${segment.id}><rect x=${from + 0.5} y=${top + 1} width=${Math.max(2, to - from - 1)} height=${Math.max(2, bottom - top - 2)} rx="5"
        fill="var(--bar)" fill-opacity=${strength} stroke="var(--accent)" stroke-opacity="0.5" />
        ${to - from > 90 && bottom - top > 16 && html`<text class="strong" x=${from + 8} y=${(top + bottom) / 2 + 4}>${`${segmentName(segment)} · ${number(segment.events)}`}</text>`}
        <title>${`segment ${segmentName(segment)}, keys ${segment.low.toFixed(3)} to ${segment.high.toFixed(3)}, ${number(segment.events)} events`}</title></g>`;
    })}
    ${stream.marks.filter((mark) => mark.at >= low).map((mark) => html`<line key=${mark.number} class="mark" stroke-opacity="0.75" x1=${x(mark.at)} x2=${x(mark.at)} y1="2" y2=${HEIGHT - BOTTOM} />`)}
    <g transform=${`translate(${LEFT} 0)`}><${Axis} low=${low} high=${high} x=${(at) => x(at) - LEFT} width=${inner} y=${HEIGHT - BOTTOM} height=${HEIGHT - 4} /></g>
  </svg></div>`;
}
