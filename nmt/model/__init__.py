"""The 2017 Transformer: attention, dropout, the layers around them and the two stacks.

Shapes, in every docstring: B sentences, S source length, T target length, D d_model, H heads, K head width (D / H),
V vocabulary, N hypotheses (B x beam).
"""
