"""The kinds of figures of a plan, and the sections of the page that has one of them alone."""

SECTIONS = {
    "waterfall": ("headline", "waterfall"),
    "memory": ("headline", "memory"),
    "heatmap": ("headline", "heatmap"),
    "pareto": ("headline", "plans"),
    "timeline": ("headline", "timeline"),
}
RL_SECTIONS = {
    "waterfall": ("rl_headline", "phases"),
    "memory": ("rl_headline", "moments"),
    "heatmap": ("rl_headline", "heatmap"),
    "timeline": ("rl_headline", "placement"),
}
"""Those of an RL step."""
KINDS = tuple(SECTIONS)
