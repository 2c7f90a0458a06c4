// `start` is the index of an attention's first weight. Its weights are [layers, heads, rows, columns]. If it is `masked`, no row
// may look at later columns.
const ATTENTIONS = {
  encoder: {
    name: "Encoder self-attention", looks: "source looks at source",
    rows: source, columns: source, start: 0,
    caption: "Rows and columns are the pieces of the source.",
    states: "the encoder’s states of the S = " + S + " source pieces look at each other: " +
      "they are the rows of <i>X</i> and of <i>Y</i>.",
    mask: "Nothing to mask: every piece of the source may see all others."
  },
  decoder: {
    name: "Masked decoder self-attention", looks: "target looks at target",
    rows: read, columns: read, start: layers * heads * S * S,
    caption: "Rows and columns are the pieces that the decoder reads: at each step itself and those before.",
    states: "the decoder’s states of the T = " + T + " target pieces look at each other: " +
      "they are the rows of <i>X</i> and of <i>Y</i>.",
    masked: true,
    mask: "Scores right of the diagonal become −∞, and so weights of 0: " +
      "a piece sees itself and those before it, for while the model translates there are no later ones yet."
  },
  cross: {
    name: "Encoder-decoder attention", looks: "target looks at source",
    rows: written, columns: source, start: layers * heads * (S * S + T * T),
    caption: "A row is a step of the decoder, named by the piece that it writes; a column is a piece of the source.",
    states: "the rows of <i>X</i> are the decoder’s states of the T = " + T + " target pieces, " +
      "the rows of <i>Y</i> the encoder’s output for the S = " + S + " source pieces.",
    mask: "Nothing to mask: every step may see the whole source."
  }
};
