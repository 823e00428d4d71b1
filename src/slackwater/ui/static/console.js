// The shell: header, banners, and the view that the address names.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { ago, connection, html, keep, link, listen, paused, restarted, route, status, theme, time, zone } from "./lib.js";
import { Ingestion } from "./ingestion.js";
import { Late } from "./late.js";
import { Now } from "./now.js";
import { StreamsView } from "./streams.js";
import { Windows } from "./windows.js";

const VIEWS = [
  ["now", "Now", Now],
  ["windows", "Windows", Windows],
  ["late", "Late", Late],
  ["ingestion", "Ingestion", Ingestion],
  ["streams", "Streams", StreamsView],
];

function Shell() {
  const { view } = route.value;
  const [, title, View] = VIEWS.find(([name]) => name === view) ?? VIEWS[0];
  useEffect(() => { document.title = `${title} · Slackwater`; }, [title]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
    <header class="top">
      <a class="brand" href=${link("now")}><img src="/static/icon.svg" alt="" width="26" height="26" />Slackwater</a>
      <nav class="tabs" aria-label="Views">${VIEWS.map(([name, text]) => html`
        <a key=${name} href=${link(name)} aria-current=${text === title ? "page" : null}>${text}</a>`)}</nav>
      <div class="tools"><${Live} /><${Tools} /></div>
    </header>
    <main id="main" tabindex="-1"><${Banners} /><${View} key=${view} /></main>`;
}

function Live() {
  const known = status.value;
  if (paused.value) return html`<span class="live" role="status"><span class="dot wait"></span>paused</span>`;
  if (connection.value === "live") return html`<span class="live" role="status"><span class=${`dot ${known.problem ? "bad" : "ok"}`}></span>${known.problem ? "store not readable" : "live"}</span>`;
  return html`<span class="live" role="status"><span class="dot bad"></span>${connection.value === "lost" ? "no connection" : "connecting"}</span>`;
}

function Tools() {
  const themes = { auto: "light", light: "dark", dark: "auto" };
  const setTheme = () => {
    theme.value = themes[theme.value] ?? "auto";
    keep("theme", theme.value);
    if (theme.value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
  };
  const setZone = () => { zone.value = zone.value === "utc" ? "local" : "utc"; keep("zone", zone.value); };
  return html`
    <button type="button" class="tool" aria-pressed=${String(paused.value)} onClick=${() => { paused.value = !paused.value; }}>${paused.value ? "Resume" : "Pause"}</button>
    <button type="button" class="tool" onClick=${setZone} aria-label=${`Time zone: ${zone.value === "utc" ? "UTC" : "local"}. Switch`}>${zone.value === "utc" ? "UTC" : "Local"}</button>
    <button type="button" class="tool" onClick=${setTheme} aria-label=${`Theme: ${theme.value}. Switch`}>${{ auto: "◐", light: "☀", dark: "☾" }[theme.value] ?? "◐"}</button>`;
}

function Banners() {
  const known = status.value;
  return html`
    ${connection.value === "lost" && html`<div class="banner bad" role="alert"><p><strong>The console's server does not answer.</strong>
      ${known ? ` Everything below was read before ${time(known.now)} (${ago(known.now)}).` : " Is it running?"} Trying again.</p></div>`}
    ${connection.value !== "lost" && known?.problem && html`<div class="banner bad" role="alert"><p><strong>The store cannot be read:</strong> ${known.problem}.
      What is below may be old.</p></div>`}
    ${restarted.value && html`<div class="banner" role="status"><p>The server was restarted at ${time(restarted.value)}; the page is connected again.
      <button type="button" class="tool" onClick=${() => { restarted.value = null; }}>OK</button></p></div>`}`;
}

listen();
render(html`<${Shell} />`, document.getElementById("console"));
