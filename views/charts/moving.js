// Draws a figure with plotly.js (`loading.js`), and updates the drawn figure when new data arrive:
// zoom and hidden lines stay as long as the figure's `uirevision` is the same.

// Redraws all charts when the reader switches between light and dark.
let watched;

function watchTheme() {
  const app = document.querySelector(".stApp");
  if (watched || !app) return;
  let before = getComputedStyle(app).color;
  watched = new MutationObserver(() => {
    const now = getComputedStyle(app).color;
    if (now === before) return;
    before = now;
    document.querySelectorAll(".moving-chart").forEach((box) => box.redraw?.());
  });
  watched.observe(app, { attributes: true, attributeFilter: ["class", "style"] });
}

// Resizes a chart with its box, also when a closed tab or a folded part that contains it is opened.
function watchWidth(Plotly, box) {
  if (box.isWatched) return;
  box.isWatched = true;
  const watch = new ResizeObserver(() => {
    if (!box.isConnected) watch.disconnect();
    else if (box.offsetWidth && box.offsetWidth !== box.drawnWidth) {
      box.drawnWidth = box.offsetWidth;
      Plotly.Plots.resize(box);
    }
  });
  watch.observe(box);
}

// Resolves after the browser has painted the page.
function afterPainting() {
  return new Promise((resolve) => {
    if (document.hidden) setTimeout(resolve);
    else requestAnimationFrame(() => setTimeout(resolve));
  });
}

let turn = Promise.resolve();
const [LEAST_HEIGHT, SHARE_OF_SCREEN] = [208, 0.29];

// Charts in sight are drawn first, one after another, and the page is painted between them. All
// others are drawn when the browser is idle. Drawing all at once would block the page for a second.
function waitToDraw(box) {
  if (box.layout) return null;
  const isInSight = box.getBoundingClientRect().top < window.innerHeight;
  if (isInSight && box.offsetWidth) return (turn = turn.then(afterPainting));
  const whenIdle = window.requestIdleCallback ?? ((callback) => setTimeout(callback, 50));
  return new Promise((resolve) => whenIdle(resolve, { timeout: 3000 }));
}

// Height of a chart. On a low screen, a chart over steps without a legend is lower, so that the first
// screen shows all of it. On a narrow screen, each entry of a legend may need its own line, which
// must not take height from the plot.
function roomFor({ data, layout }, box) {
  const { height, legend, margin, meta, showlegend } = layout;
  if (meta?.x && showlegend === false) {
    return { height: Math.min(height, Math.max(LEAST_HEIGHT, SHARE_OF_SCREEN * innerHeight)) };
  }
  const entries = data.filter((trace) => trace.showlegend !== false).length;
  const isNarrow = box.offsetWidth && box.offsetWidth < NARROW;
  if (showlegend === false || entries < 2 || !isNarrow) return { height };
  if (legend?.y > 1) return { height: height + 14 * entries };
  return { height: height + 8 * entries, margin: { ...margin, b: margin.b + 8 * entries } };
}

// A click on a mark that has an address of ours leads there.
function leadOn(box) {
  if (box.leadsOn) return;
  box.leadsOn = true;
  box.on("plotly_click", ({ points }) => {
    const address = points[0]?.customdata?.[1];
    if (/^(experiment|launch)\?[\w=-]+$/.test(address)) location.assign(address);
  });
}

export default async function ({ data, parentElement }) {
  const box = parentElement.querySelector(".moving-chart");
  const figure = JSON.parse(data.figure);
  box.setAttribute("aria-label", data.alt);
  const room = roomFor(figure, box);
  box.style.height = `${room.height}px`;
  const config = { ...data.config, responsive: true, showSendToCloud: false };
  const draw = () => {
    const layout = asOthers(box, data.group, themed({ ...figure.layout, ...room }, box));
    return Plotly.react(box, figure.data, layout, config);
  };
  box.wanted = draw;
  const Plotly = await load(data.plotly);
  await waitToDraw(box);
  if (box.wanted !== draw) return; // Newer data arrived meanwhile.
  box.drawnWidth = box.offsetWidth;
  await draw();
  link(Plotly, box, data.group);
  leadOn(box);
  box.redraw = draw;
  watchTheme();
  watchWidth(Plotly, box);
}
