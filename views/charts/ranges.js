// Charts of one group that stand over the same x show the same part of it: who zooms one, zooms all.
// A figure says in `layout.meta.x` what stands below it; the group is an experiment's page.
const shared = (box) => box.layout?.meta?.x && `${box.group} ${box.layout.meta.x}`;
let isMovingOthers = false;

function others(box, key) {
  const all = [...document.querySelectorAll(".js-plotly-plot")];
  return all.filter((one) => one !== box && one.isConnected && one.isLinked && shared(one) === key);
}

// The layout of a chart that is about to be drawn, at the part that the others show.
function asOthers(box, group, layout) {
  const key = layout.meta?.x && `${group} ${layout.meta.x}`;
  if (!key || (box.isLinked && shared(box) === key)) return layout;
  const zoomed = others(box, key).find((one) => one.layout.xaxis?.autorange === false);
  if (!zoomed) return layout;
  const range = [...zoomed.layout.xaxis.range];
  return { ...layout, xaxis: { ...layout.xaxis, range, autorange: false } };
}

function moved(changed) {
  if (changed["xaxis.autorange"]) return { "xaxis.autorange": true };
  const range = changed["xaxis.range"] ?? [changed["xaxis.range[0]"], changed["xaxis.range[1]"]];
  return range[0] === undefined ? null : { "xaxis.range": [...range] };
}

// After a chart was drawn: what its reader does to its x, is done to the others'.
function link(Plotly, box, group) {
  box.group = group;
  if (box.isLinked) return;
  box.isLinked = true;
  box.on("plotly_relayout", async (changed) => {
    const move = moved(changed);
    if (isMovingOthers || !move || !shared(box)) return;
    isMovingOthers = true;
    try {
      await Promise.all(others(box, shared(box)).map((one) => Plotly.relayout(one, move)));
    } finally {
      isMovingOthers = false;
    }
  });
}
