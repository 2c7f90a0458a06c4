// The decoder's look at the source, before each step. Its weights are [1, 1, rows, columns].
const ATTENTIONS = {
  cross: {
    name: "Additive attention", looks: "target looks at source",
    rows: written, columns: source, start: 0,
    caption: "A row is a step of the decoder, named by the piece that it writes; a column is a piece of the source. The state " +
      "that looks is that of the step before: it does not know yet which piece was written last."
  }
};

// The formulas of Bahdanau et al. 2015, section 3.1 and appendix A, with the sizes of this attention.
function explain() {
  const D = d_model, s = "<i>s</i><sub><i>t</i>−1</sub>", h = "<i>h<sub>j</sub></i>";
  byId("states").innerHTML = "It has one head and no queries, keys and values: <i>s</i> is a state of the decoder, " + D +
    " numbers, and " + h + " what the encoder says of source piece <i>j</i>. The weights <i>W</i>, <i>U</i> and <i>v</i> are learned.";
  const annotations = {name: "annotations <i>h</i>", size: [S, 2 * D]};
  const steps = [
    ["Encoder", "Two GRUs read the source, one from left to right and one from right to left, a step for each piece. " +
      "Side by side, their states of a piece are its annotation " + h + ", 2 · " + D + " = " + 2 * D + " numbers. All S = " + S +
      " are kept.", [annotations]],
    ["State", "Before it writes piece <i>t</i> the decoder looks with the state " + s + " of the step before: it was computed from " +
      "the pieces up to <i>t</i> − 2, and has not read the last one."],
    ["Score", "A small network compares them: <i>e<sub>tj</sub></i> = <i>v</i><sup>⊤</sup> tanh(<i>W</i> " + s + " + <i>U</i> " + h +
      "), one number for each source piece. <i>U</i> " + h + " is computed once a sentence, the rest anew in each step."],
    ["SoftMax", "<i>e</i> to the power of each score, divided by the sum of these: S = " + S +
      " weights from 0 to 1 that sum to 1. They are a row of the map."],
    ["Mean", "The annotations’ mean by these weights is the context <i>c<sub>t</sub></i>: what this step takes from the source.",
      [{name: "weights", size: [1, S], style: "weights"}, "·", annotations, "=", {name: "<i>c<sub>t</sub></i>", size: [1, 2 * D]}]],
    ["GRU", "From the last piece written, <i>c<sub>t</sub></i> and " + s + " it makes the next state <i>s<sub>t</sub></i>. " +
      "So row <i>t</i> needs row <i>t</i> − 1: all T = " + T + " rows are computed one after the other, even in training. " +
      "The Transformer computes them at once."]
  ];
  byId("steps").innerHTML = steps.map(([name, text, factors]) =>
    "<li><b>" + name + "</b><div><p>" + text + "</p>" + (factors ? product(factors) : "") + "</div></li>").join("");
}
