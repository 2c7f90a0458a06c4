"""What is looked at in a browser: how a run went, and what the model looks at in a sentence."""
