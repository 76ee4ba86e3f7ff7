"use strict";
// The bound against the labels, as SVG. Attributes only: the page allows no inline style.

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const percent = share => `${+(100 * share).toFixed(1)}\u00a0%`;

function ticks(most, n) {
  const rough = most / n, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(k => k * size).find(k => k >= rough - 1e-12);
  const found = [];
  for (let at = 0; at <= most + step * 1e-6; at += step) found.push(at);
  return found;
}

export function drawChart(place, standing) {
  const width = 320, height = 170, left = 38, right = 8, top = 8, bottom = 22;
  const points = standing.curve;
  const most = Math.max(20, standing.labels, ...points.map(p => p[0]));
  const target = standing.target || 0.05;  // without one, the scale of the usual target
  const high = Math.min(1, Math.max(6 * target, 0.2), Math.max(2.5 * target, ...points.map(p => p[1])));
  const x = n => left + (width - left - right) * n / most;
  const y = v => top + (height - top - bottom) * (1 - Math.min(v, high) / high);
  const last = points.length ? `, now ${percent(points[points.length - 1][1])}` : ", none yet";
  const drawn = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Bound on the error rate by number of labels, target ${standing.target ? percent(standing.target) : "none"}${last}`,
  });
  for (const v of ticks(high, 4)) {
    drawn.append(svg("line", {class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v)}));
    if (!standing.target || Math.abs(y(v) - y(standing.target)) > 11)
      drawn.append(svg("text", {x: left - 6, y: y(v) + 3.5, "text-anchor": "end"}, percent(v)));
  }
  for (const n of ticks(most, 4))
    drawn.append(svg("text", {x: Math.min(x(n), width - right - 6), y: height - 6, "text-anchor": "middle"}, String(n)));
  if (standing.target) {
    const goal = y(standing.target);
    drawn.append(svg("line", {class: "target", x1: left, x2: width - right, y1: goal, y2: goal}));
    drawn.append(svg("text", {class: "target-name", x: left - 6, y: goal + 3.5, "text-anchor": "end"}, percent(standing.target)));
  }
  const audits = new Map();
  for (const [n, value, audit] of points) audits.set(audit, [...(audits.get(audit) || []), [n, value]]);
  for (const [audit, line] of audits) {
    const path = line.map(([n, v], i) => `${i ? "L" : "M"}${x(n).toFixed(1)} ${y(v).toFixed(1)}`).join("");
    drawn.append(svg("path", {class: audit ? "theorem" : "measured", d: path}));
    const [n, value] = line[line.length - 1];
    drawn.append(svg("circle", {class: audit ? "dot" : "hollow", cx: x(n), cy: y(value), r: audit ? 3.5 : 3}));
  }
  place.replaceChildren(drawn);
}

export function drawCounts(place, counts) {
  const most = Math.max(1, ...counts.map(([, n]) => n));
  const rows = counts.map(([name, n]) => {
    const row = document.createElement("div"), label = document.createElement("span"), number = document.createElement("span");
    row.className = "count";
    label.textContent = name;
    number.textContent = n;
    const bar = svg("svg", {viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true"});
    bar.append(svg("rect", {class: "rest", width: 100, height: 6, rx: 1}), svg("rect", {width: 100 * n / most, height: 6, rx: 1}));
    row.append(label, bar, number);
    return row;
  });
  place.replaceChildren(...rows);
}
