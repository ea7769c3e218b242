// What pages do beyond htmx: dialogs, the learning curve, and a word when the service is away.
"use strict";

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) {
    const dialog = document.getElementById(opener.dataset.opens);
    if (!dialog) return;
    if (opener.dataset.number) {
      dialog.querySelector("input[name=number]").value = opener.dataset.number;
      dialog.querySelector("[data-number]").textContent = opener.dataset.number;
    }
    dialog.showModal();
  }
  const closer = event.target.closest("[data-closes]");
  if (closer) closer.closest("dialog").close();
});

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const charts = new Set();

function marksOf(data) {
  // Each new encoder is a vertical line behind the curve.
  return (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const mark of data.marks) {
      const x = Math.round(chart.valToPos(mark.offset, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour(mark.kind);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };
}

function drawn(place) {
  const data = JSON.parse(place.dataset.curve);
  const axis = { stroke: colour("muted"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const shown = (_, value) => (value == null ? "–" : value.toPrecision(3));
  const few = data.places.length < 3;
  const line = ({ label, colour: name, dashed }) => ({
    label, stroke: colour(name), width: dashed ? 1.5 : 2, dash: dashed ? [6, 3] : [], points: { show: few, size: 6 }, value: shown,
  });
  const along = { label: data.title[0].toUpperCase() + data.title.slice(1), value: (_, at) => (at == null ? "–" : at.toLocaleString("en")) };
  const series = [along, ...data.lines.map(line)];
  const values = [data.places, ...data.lines.map((each) => each.values)];
  place.textContent = "";
  const height = place.clientWidth < 500 ? 180 : 250; // a phone, or a chart beside a list
  const room = 0.03 * (data.high - data.low); // a line at the edge is not cut
  const options = {
    width: place.clientWidth, height, series, legend: { live: true }, padding: [8, 12, 0, 0],
    scales: { x: { time: false }, y: { range: [data.low - room, data.high + room] } },
    axes: [{ ...axis, label: data.title, labelFont: "12px system-ui", labelSize: 18 }, { ...axis, size: 48 }],
    cursor: { y: false, drag: { x: false, y: false } },
    hooks: { drawAxes: [marksOf(data)] },
  };
  const chart = new uPlot(options, values, place);
  charts.add({ place, chart });
}

function draw(root) {
  for (const each of charts) if (!each.place.isConnected) { each.chart.destroy(); charts.delete(each); }
  for (const place of root.querySelectorAll("[data-curve]:not([data-drawn])")) {
    place.dataset.drawn = "";
    drawn(place);
  }
}

function again() {
  for (const each of charts) { each.chart.destroy(); delete each.place.dataset.drawn; }
  charts.clear();
  draw(document);
}

addEventListener("DOMContentLoaded", () => draw(document));
document.addEventListener("htmx:after:swap", () => draw(document));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
let pause;
addEventListener("resize", () => { clearTimeout(pause); pause = setTimeout(again, 150); });

const away = (isAway) => { document.querySelector(".offline").hidden = !isAway; };
document.addEventListener("htmx:error", () => away(true));
document.addEventListener("htmx:response:error", () => away(true));
document.addEventListener("htmx:after:request", (event) => away(!(event.detail.ctx.response.raw.status < 500)));

// A page that nobody sees asks for nothing; once it is seen again its next poll brings what has changed.
document.addEventListener("htmx:before:request", (event) => {
  const asked = event.detail.ctx.sourceElement?.getAttribute?.("hx-trigger");
  if (document.hidden && asked?.startsWith("every")) event.preventDefault();
});

// Forms with tables: a changed choice is shown at once, and an import shows how far it is.
document.addEventListener("change", (event) => {
  const form = event.target.matches("[data-looks]") && event.target.form;
  if (!form || [...form.querySelectorAll("input[type=file]")].some((each) => !each.files.length)) return;
  form.requestSubmit(form.querySelector("[data-previews]"));
});

// What is typed while an answer is on its way stays.
let typed = [];
document.addEventListener("htmx:before:swap", () => {
  typed = [...document.querySelectorAll("#chosen :is(input:not([type]), textarea)[id]")].map((each) => [each.id, each.value]);
});
document.addEventListener("htmx:after:swap", () => {
  for (const [id, value] of typed) { const field = document.getElementById(id); if (field) field.value = value; }
  typed = [];
});

let watching;
document.addEventListener("submit", (event) => {
  const form = event.target, name = form.elements.name;
  if (!event.submitter?.hasAttribute("data-slow")) return;
  const box = form.querySelector(".watch"), asked = new URLSearchParams({ name: name.value, after: form.dataset.watches });
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
  watching = setInterval(async () => {
    const answer = await fetch(`/console/importing?${asked}`).catch(() => null);
    if (answer?.status !== 200) return;
    const part = document.createElement("template");
    part.innerHTML = await answer.text();
    for (const each of ["p[data-progress]", "progress"]) box.querySelector(each).replaceWith(part.content.querySelector(each));
  }, 700);
}, true);
document.addEventListener("htmx:after:request", (event) => {
  if (!watching || !event.detail.ctx.sourceElement?.matches?.("[data-watches]")) return;
  clearInterval(watching);
  watching = undefined;
  document.querySelector(".watch").hidden = true;
});
