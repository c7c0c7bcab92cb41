// Pixels of a chart on a phone.
const NARROW = 420;

// The page's font and colours for a figure, as Streamlit gives them to its own charts.
function themed(layout, box) {
  const { color, fontFamily } = getComputedStyle(box);
  const faint = "rgba(138, 143, 152, 0.22)";
  const line = { gridcolor: faint, linecolor: faint, zerolinecolor: faint, automargin: true };
  const axes = Object.keys(layout).filter((name) => /^[xy]axis/.test(name));
  const clear = "rgba(0, 0, 0, 0)";
  return {
    ...layout,
    ...Object.fromEntries(axes.map((name) => [name, { ...line, ...layout[name] }])),
    autosize: true,
    font: { color, family: fontFamily, size: box.offsetWidth < NARROW ? 10 : 12 },
    hoverlabel: { ...layout.hoverlabel, bgcolor: getComputedStyle(document.body).backgroundColor },
    modebar: { bgcolor: clear, color: "#7d828c", activecolor: color },
    paper_bgcolor: clear,
    plot_bgcolor: clear,
    template: {},
  };
}
