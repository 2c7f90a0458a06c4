// One stack over source and target. Its attention is drawn in three parts. `start` is the index of a part's first weight; its
// weights are [layers, heads, rows, columns]. If it is `masked`, no row may look at later columns. `share` says which columns of a
// larger softmax a part holds.
const ONE_ROW = " One stack reads source and target in one row, so each target piece spreads a single softmax over both: " +
  "a row of this map and the same row of ";
const ATTENTIONS = {
  encoder: {
    name: "Self-attention within the source", looks: "source looks at source",
    rows: source, columns: source, start: 0,
    caption: "Rows and columns are the pieces of the source, the first part of the one row that the stack reads. " +
      (mask === "causal" ? "The mask is causal, so the source too is read from left to right."
        : "The mask is that of a prefix, so each piece sees the whole source, as in an encoder."),
    states: "the stack’s states of the S = " + S + " source pieces look at each other: " +
      "they are the rows of <i>X</i> and of <i>Y</i>.",
    masked: mask === "causal",
    mask: mask === "causal"
      ? "Scores right of the diagonal become −∞, and so weights of 0: a piece sees itself and those before it. " +
        "The target comes later still."
      : "Within the source nothing is masked. All of the target is: its pieces come later, so the source’s states do not " +
        "depend on them, and are computed once for all steps."
  },
  decoder: {
    name: "Self-attention within the target", looks: "target looks at target",
    rows: read, columns: read, start: layers * heads * S * S,
    caption: "Rows and columns are the target pieces that the stack reads: at each step itself and those before." +
      ONE_ROW + "“target looks at source” together sum to 1.",
    states: "the rows of <i>X</i> are the states of the T = " + T + " target pieces, the rows of <i>Y</i> those of all " +
      "S + T = " + (S + T) + " pieces.",
    share: "The map shows the last T of the S + T weights in a row, which are those of the target.",
    masked: true,
    mask: "Scores of later target pieces become −∞, and so weights of 0: " +
      "while the model translates there are no later ones yet. The source is never masked."
  },
  cross: {
    name: "Self-attention, from the target to the source", looks: "target looks at source",
    rows: written, columns: source, start: layers * heads * (S * S + T * T),
    caption: "A row is a step, named by the piece that is written there; a column is a piece of the source." +
      ONE_ROW + "“target looks at target” (there named by the piece that is read) together sum to 1.",
    states: "the rows of <i>X</i> are the states of the T = " + T + " target pieces, the rows of <i>Y</i> those of all " +
      "S + T = " + (S + T) + " pieces. No separate attention to the source is needed.",
    share: "The map shows the first S of the S + T weights in a row, which are those of the source.",
    mask: "Scores of later target pieces become −∞. The source is never masked."
  }
};
