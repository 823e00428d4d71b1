// The list from which a query is chosen, for views that show one.
import { html, link, useView } from "./lib.js";
import { Loaded, Name, Stale, Swatch, Table } from "./parts.js";
import { healthOf, sentenceOf } from "./now.js";

export function Pick({ view, title, text }) {
  const state = useView("/api/now");
  return html`<${Stale} state=${state} /><${Loaded} state=${state}>${(data) => html`<section class="card"><h1>${title}</h1><p class="quiet">${text}</p>
    <${Table} caption="Queries" rows=${data.queries} rowKey=${(query) => query.id} empty="No query has reported to this store." columns=${[
      ["Query", (query) => html`<${Swatch} state=${healthOf(query)} /> <a href=${link(view, [query.id])}><${Name} text=${query.title} most=${60} /></a>`, { sort: (query) => query.title }],
      ["State", (query) => html`<${Name} text=${sentenceOf(query)} most=${300} />`],
    ]} /></section>`}<//>`;
}
