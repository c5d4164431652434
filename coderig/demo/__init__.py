"""The demo: an agent repairs a small real project. Only the model's words come from a script."""
