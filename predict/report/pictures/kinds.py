"""The kinds of figures of a plan, and the sections of the page that has one of them alone."""

SECTIONS = {
    "waterfall": ("headline", "waterfall"),
    "memory": ("headline", "memory"),
    "heatmap": ("headline", "heatmap"),
    "pareto": ("headline", "plans"),
    "timeline": ("headline", "timeline"),
}
KINDS = tuple(SECTIONS)
