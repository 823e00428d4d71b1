// A line chart over time, drawn by uPlot. Without a pointer its legend has the newest value.
import { useEffect, useRef } from "preact/hooks";
import { duration, html, theme, tickText, time, useWidth, zone } from "./lib.js";

export function Lines({ x, y, unit, label }) {
  const [ref, width] = useWidth();
  const target = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    if (!width || !target.current || !globalThis.uPlot) return undefined;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("faint"), width: 1 }, font: "11px system-ui, sans-serif" };
    plot.current = new globalThis.uPlot({
      width, height: 190, legend: { show: true }, cursor: { y: false },
      tzDate: (at) => (zone.value === "utc" ? globalThis.uPlot.tzDate(new Date(at * 1000), "Etc/UTC") : new Date(at * 1000)),
      scales: { x: { time: true, range: (plot, low, high) => (plot.data[0].length > 1 ? [low, high] : [low - 30, low + 30]) }, y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.05)] } },
      axes: [{ ...axis, values: (_, at) => at.map((each) => tickText(each * 1e6, (at[1] - at[0]) * 1e6)) }, { ...axis, size: 84, values: (_, ticks) => ticks.map((value) => duration(value * 1e6)) }],
      series: [{ label: "at", value: (plot, at) => time((at ?? plot.data[0].at(-1)) * 1e6, { date: true }) },
        { label: unit, stroke: colour("failed"), width: 2, fill: colour("band"), points: { show: x.length < 60, size: 5 }, value: (plot, value) => duration((value ?? plot.data[1].at(-1)) * 1e6) }],
    }, [x, y], target.current);
    return () => { plot.current.destroy(); plot.current = null; };
  }, [width, theme.value, zone.value, unit]);
  useEffect(() => { plot.current?.setData([x, y]); }, [x, y]);
  return html`<div ref=${ref} class="chart" role="img" aria-label=${label}><div ref=${target}></div></div>`;
}
