// Charts of a group with the same x-axis zoom together. `layout.meta.x` names the x-axis; the group
// is the page of an experiment.
const sharedAxis = (box) => box.layout?.meta?.x && `${box.group} ${box.layout.meta.x}`;
let isMovingOthers = false;

function others(box, key) {
  const charts = [...document.querySelectorAll(".js-plotly-plot")].filter((chart) => chart !== box);
  return charts.filter((chart) => chart.isConnected && chart.isLinked && sharedAxis(chart) === key);
}

// The layout of a chart that is about to be drawn, zoomed like the others.
function asOthers(box, group, layout) {
  const key = layout.meta?.x && `${group} ${layout.meta.x}`;
  if (!key || (box.isLinked && sharedAxis(box) === key)) return layout;
  const zoomed = others(box, key).find((chart) => chart.layout.xaxis?.autorange === false);
  if (!zoomed) return layout;
  const range = [...zoomed.layout.xaxis.range];
  return { ...layout, xaxis: { ...layout.xaxis, range, autorange: false } };
}

// The change of the x-axis in Plotly's event, or null.
function axisChange(changed) {
  if (changed["xaxis.autorange"]) return { "xaxis.autorange": true };
  const range = changed["xaxis.range"] ?? [changed["xaxis.range[0]"], changed["xaxis.range[1]"]];
  return range[0] === undefined ? null : { "xaxis.range": [...range] };
}

// Lets the other charts of the group follow the x-axis of a drawn chart.
function link(Plotly, box, group) {
  box.group = group;
  if (box.isLinked) return;
  box.isLinked = true;
  box.on("plotly_relayout", async (changed) => {
    const change = axisChange(changed);
    if (isMovingOthers || !change || !sharedAxis(box)) return;
    isMovingOthers = true;
    try {
      await Promise.all(others(box, sharedAxis(box)).map((chart) => Plotly.relayout(chart, change)));
    } finally {
      isMovingOthers = false;
    }
  });
}
