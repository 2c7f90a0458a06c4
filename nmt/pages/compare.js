"use strict";
const {pieces, pairs} = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);

// The two drawings of steps. A part waits until its step has come.
function showStep(now) {
  for (const part of document.querySelectorAll("[data-step]")) {
    const step = Number(part.dataset.step);
    part.classList.toggle("waiting", step > now);
    part.classList.toggle("now", step === now && now > 0);
  }
  byId("step").value = now;
  byId("step-shown").textContent = now + " of " + pieces;
  const counted = number => number + (number === 1 ? " piece" : " pieces");
  byId("chain-told").textContent = now === 0 ? "Nothing is read yet." : now === pieces
    ? "After " + pieces + " steps the last piece is read, and the first has passed through all " + pieces + " cells."
    : "After " + now + (now === 1 ? " step " : " steps ") + counted(now) + " read. " + counted(pieces - now) + " must wait.";
  byId("all-told").textContent = now === 0 ? "Nothing is read yet."
    : "After one step every piece has looked at all " + pieces + "." + (now > 1 ? " There is nothing left to wait for." : "");
}

let timer = null;

function stop() {
  clearInterval(timer);
  timer = null;
  byId("play").textContent = "Play";
}

byId("step").addEventListener("input", event => { stop(); showStep(Number(event.target.value)); });
byId("play").addEventListener("click", () => {
  if (timer !== null) return stop();
  let now = Number(byId("step").value) % pieces;  // from the end it begins anew
  showStep(now);
  byId("play").textContent = "Pause";
  timer = setInterval(() => {
    showStep(++now);
    if (now === pieces) stop();
  }, 600);
});

// The circles on which sine-cosine pairs turn.
const SVG = "http://www.w3.org/2000/svg", R = 44, MIDDLE = 60;

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const onCircle = (angle, radius = R) => [MIDDLE + radius * Math.cos(angle), MIDDLE - radius * Math.sin(angle)];

function circle({number, omega}, p, k) {
  const from = omega * p, by = omega * k, turn = 2 * Math.PI, rest = by % turn;
  const svg = shape("svg", {viewBox: "0 0 120 120", role: "img", "aria-label": "Pair " + number + ", turned by " + degrees(by)});
  const [x1, y1] = onCircle(from), [x2, y2] = onCircle(from + by), inner = 20;
  const [a, b] = [onCircle(from, inner), onCircle(from + rest, inner)];
  svg.append(
    shape("circle", {cx: MIDDLE, cy: MIDDLE, r: R}),
    shape("line", {x1: MIDDLE, y1: MIDDLE, x2: x1, y2: y1}),
    shape("line", {x1: MIDDLE, y1: MIDDLE, x2, y2, class: "moved"}),
    shape("path", {d: "M" + a + "A" + [inner, inner, 0, rest > Math.PI ? 1 : 0, 0] + " " + b}),
    shape("circle", {cx: x2, cy: y2, r: 6, class: "to"}),
    shape("circle", {cx: x1, cy: y1, r: 6, class: "from"})
  );
  const told = document.createElement("p");
  told.append("pair " + number + ", ω = " + omega.toPrecision(2), document.createElement("br"), "k·ω = " + degrees(by));
  const figure = document.createElement("figure");
  figure.dataset.angle = by;
  figure.append(svg, told);
  return figure;
}

const degrees = angle => (angle * 180 / Math.PI).toFixed(1) + "°";

function turn() {
  const p = Number(byId("p").value), k = Number(byId("k").value);
  byId("p-shown").textContent = "position " + p;
  byId("k-shown").textContent = k + (k === 1 ? " position" : " positions");
  byId("circles").replaceChildren(...pairs.map(pair => circle(pair, p, k)));
}

for (const id of ["p", "k"]) byId(id).addEventListener("input", turn);
document.querySelector(".controls").hidden = byId("turning").hidden = false;
showStep(pieces);
turn();
