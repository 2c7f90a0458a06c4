"""The 2017 Transformer: attention, the layers around it, and the two stacks.

One legend for shapes, here and everywhere: B sentences, S source length, T target length, D d_model, H heads, K head width
(D / H), V vocabulary, N hypotheses (B x beam).
"""
