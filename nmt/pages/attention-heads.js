// The boxes of figure 2 of the paper, from bottom to top, with the sizes of this attention. With `share`, which says so, the map
// holds some columns of a softmax over source and target.
function explain() {
  const {rows, columns, states, mask, share} = chosen(), R = rows.length, C = share ? S + T : columns.length;
  const [r, c] = [rows === source ? "S" : "T", share ? "(S + T)" : columns === source ? "S" : "T"];
  const dk = "<i>d<sub>k</sub></i>", dModel = "<i>d</i><sub>model</sub>", W = "<i>W<sup>";
  const Q = {name: "<i>Q</i>", size: [R, d_k]};
  const K = {name: "<i>K</i><sup>⊤</sup>", size: [d_k, C]};
  const V = {name: "<i>V</i>", size: [C, d_k]};
  const scores = {name: "scores", size: [R, C]};
  const map = {name: "weights", size: [R, C], style: "weights"};
  const mixed = {name: "result", size: [R, d_k]};
  byId("states").innerHTML = "<i>X</i> is who looks and <i>Y</i> what is looked at, a row of " + dModel + " = " + d_model +
    " numbers for each piece. Here " + states + " In bold, the boxes of figure 2 of the paper, from bottom to top.";
  const steps = [
    ["Linear", "Three learned matrices of " + by(dModel, dk) + " = " + by(d_model, d_k) + ", and a bias each, " +
      "make queries <i>Q</i> = <i>X</i>" + W + "Q</sup></i> of who looks (" + by(r, dk) + "), " +
      "keys <i>K</i> = <i>Y</i>" + W + "K</sup></i> and values <i>V</i> = <i>Y</i>" + W +
      "V</sup></i> of what is looked at (" + by(c, dk) + ")."],
    ["MatMul", "Every query times every key: one score for each pair.", [Q, "·", K, "=", scores]],
    ["Scale", "Each score is divided by √" + dk + " = √" + d_k + " = " + Math.sqrt(d_k).toFixed(2) + ". As a sum of " + dk +
      " products it would grow like √" + dk + ", until softmax saturates and hardly learns."],
    ["Mask", mask],
    ["SoftMax", "<i>e</i> to the power of each score, divided by the sum of these over its row: " +
      "weights from 0 to 1 that sum to 1. " + (share || "They are the map.")],
    ["MatMul", "Weights times values: each row becomes a mean of the values, weighted by how much it looks at them.",
      [map, "·", V, "=", mixed]],
    ["Concat", "The <i>h</i> = " + heads + " heads of a layer each do all this with matrices of their own. " +
      "Side by side, their results are " + by(r, "<i>h</i>·" + dk) + " = " + by(R, d_model) + ".",
      [{name: "results of " + heads + " heads", size: [R, d_model], parts: heads}]],
    ["Linear", "A last learned matrix " + W + "O</sup></i> of " + by(d_model, d_model) + ", and a bias, " +
      "mixes what the heads have found: " + by(R, d_model) + ", as <i>X</i> was."]
  ];
  byId("steps").classList.toggle("masked", !!chosen().masked && !share);
  byId("steps").innerHTML = steps.map(([name, text, factors]) =>
    "<li><b>" + name + "</b><div><p>" + text + "</p>" + (factors ? product(factors) : "") + "</div></li>").join("");
}
