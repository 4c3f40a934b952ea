// The score of a suggestion on the scores of its class: known present, known absent and unknown cells.

import { element, score, svg } from "./dom.js";

const WIDTH = 340, HEIGHT = 128, LEFT = 6, RIGHT = 6, TOP = 24, BASE = 108;
const GROUPS = [["negative", "known absent"], ["positive", "known present"], ["unknown", "unknown"]];
const total = (counts) => counts.reduce((sum, count) => sum + count, 0);

// Share of a group below a score, straight lines within a bin.
export function below(edges, counts, value) {
  const all = total(counts);
  if (!all) return null;
  let sum = 0;
  for (let i = 0; i < counts.length; i += 1) {
    const width = edges[i + 1] - edges[i];
    sum += counts[i] * Math.min(1, Math.max(0, width > 0 ? (value - edges[i]) / width : 0));
  }
  return sum / all;
}

// Few cells in many bins look like a comb: neighbouring bins are joined until the smallest group fills them.
function coarser({ edges, ...counts }) {
  const sizes = Object.values(counts).map(total).filter(Boolean);
  const cells = Math.min(...sizes);
  if (!sizes.length || counts.positive?.length <= 16 || edges.length % 2 === 0 || cells >= 5 * (edges.length - 1)) return { edges, ...counts };
  const pairs = (values) => values.filter((_, i) => i % 2 === 0).map((value, i) => value + values[2 * i + 1]);
  const joined = Object.fromEntries(Object.entries(counts).map(([name, values]) => [name, pairs(values)]));
  return coarser({ edges: edges.filter((_, i) => i % 2 === 0), ...joined });
}

export function chart(report, suggestion) {
  const { edges, ...counts } = coarser(report.histogram ?? {});
  if (!edges?.length) return null;
  const low = edges[0], span = edges.at(-1) - low || 1;
  const x = (value) => LEFT + (WIDTH - LEFT - RIGHT) * Math.min(1, Math.max(0, (value - low) / span));
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "chart", "aria-label": describe(report, suggestion) });
  for (const [name] of GROUPS) {
    const path = outline(edges, counts[name] ?? [], x, name === "unknown");
    if (path) picture.append(svg("path", { d: path, class: `group ${name}` }));
  }
  picture.append(svg("path", { d: `M${LEFT} ${BASE}H${WIDTH - RIGHT}`, class: "axis" }));
  for (const tick of [0, 0.5, 1]) {
    const value = low + span * tick;
    const anchor = ["start", "middle", "end"][tick * 2];
    picture.append(svg("text", { x: x(value), y: HEIGHT - 5, class: "tick", "text-anchor": anchor }, String(Number(value.toPrecision(3)))));
  }
  for (const side of ["present", "absent"]) {
    const threshold = report[side]?.threshold;
    if (typeof threshold === "number") {
      picture.append(svg("path", { d: `M${x(threshold)} ${TOP - 4}V${BASE}`, class: `threshold ${side}` }));
    }
  }
  const at = x(suggestion.score);
  const anchor = at < 40 ? "start" : at > WIDTH - 40 ? "end" : "middle";
  picture.append(
    svg("path", { d: `M${at} ${TOP - 6}V${BASE}`, class: "mark" }),
    svg("path", { d: `M${at - 5} ${TOP - 8}h10l-5 7z`, class: "head" }),
    svg("text", { x: at, y: TOP - 12, class: "value", "text-anchor": anchor }, score(suggestion.score)),
  );
  return element("figure", { class: "distribution" }, picture, legend(report, counts));
}

// Heights are square roots of the share of the largest bin, so that thin tails, where thresholds lie, stay visible.
function outline(edges, counts, x, open) {
  const top = Math.max(0, ...counts);
  if (!top) return null;
  const y = (count) => (BASE - (BASE - TOP) * Math.sqrt(count / top)).toFixed(1);
  let path = open ? `M${x(edges[0]).toFixed(1)} ${y(counts[0])}` : `M${x(edges[0]).toFixed(1)} ${BASE}`;
  counts.forEach((count, i) => { path += `V${y(count)}H${x(edges[i + 1]).toFixed(1)}`; });
  return open ? path : `${path}V${BASE}Z`;
}

function legend(report, counts) {
  const entries = GROUPS.filter(([name]) => total(counts[name] ?? [])).map(([name, title]) => key(`group ${name}`, title));
  for (const [side, sign] of [["present", "≥"], ["absent", "≤"]]) {
    const threshold = report[side]?.threshold;
    if (typeof threshold === "number") entries.push(key(`threshold ${side}`, `${side} ${sign} ${score(threshold)}`));
  }
  return element("figcaption", { class: "legend" }, ...entries);
}

function key(look, title) {
  const line = look.startsWith("threshold") || look.endsWith("unknown");
  const shape = line ? svg("path", { d: "M9 1V13", class: look }) : svg("path", { d: "M2 2H16V12H2Z", class: look });
  if (look.endsWith("unknown")) shape.setAttribute("d", "M1 7H17");
  return element("span", { class: "key" }, svg("svg", { viewBox: "0 0 18 14", "aria-hidden": "true" }, shape), title);
}

// The chart in a sentence, beside it for everybody and in place of it for those who cannot see it.
export function describe(report, suggestion) {
  const { edges, ...counts } = report.histogram ?? {};
  if (!edges?.length) return "";
  const parts = [];
  for (const [name, title] of GROUPS.slice(0, 2)) {
    const share = below(edges, counts[name] ?? [], suggestion.score);
    if (share !== null) parts.push(`${percent(share)} of the ${title}`);
  }
  return parts.length ? `Scores higher than ${parts.join(" and ")} cells of this class.` : "";
}

function percent(share) {
  if (share > 0 && share < 0.01) return "under 1 %";
  if (share < 1 && share > 0.99) return "over 99 %";
  return `${Math.round(100 * share)} %`;
}
