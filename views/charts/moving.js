// Draws a figure with plotly.js (`loading.js`) and, when other data come, tells the drawn one: what
// its reader zoomed and hid stays, as long as the figure's `uirevision` is the same.

// Whoever switches between light and dark sees all charts in the new colours at once.
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

// A chart has the width of its place, also once a hidden one (in a tab, or folded) is shown.
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

// Once all that is there by now is on the screen.
function afterPainting() {
  return new Promise((act) => {
    if (document.hidden) setTimeout(act);
    else requestAnimationFrame(() => setTimeout(act));
  });
}

let turn = Promise.resolve();
const [LEAST_HEIGHT, SHARE_OF_SCREEN] = [208, 0.29];

// What is in sight is drawn first, one after the other with a look at the page between them, the
// rest whenever the browser has nothing else to do: drawing them all at once would keep it from
// showing the text beside them, and from answering, for a second.
function itsTurn(box) {
  if (box.layout) return null;
  const isInSight = box.getBoundingClientRect().top < window.innerHeight;
  if (isInSight && box.offsetWidth) return (turn = turn.then(afterPainting));
  const whenIdle = window.requestIdleCallback ?? ((act) => setTimeout(act, 50));
  return new Promise((act) => whenIdle(act, { timeout: 3000 }));
}

// On a low screen a chart over steps without a legend is lower, so that the first screen shows all
// of it. On a narrow screen an entry of a legend may need a line of its own, which would take height
// from the plot.
function roomFor({ data, layout }, box) {
  const { height, legend, margin, meta, showlegend } = layout;
  if (meta?.x && showlegend === false) {
    return { height: Math.min(height, Math.max(LEAST_HEIGHT, SHARE_OF_SCREEN * innerHeight)) };
  }
  const named = data.filter((one) => one.showlegend !== false).length;
  const isNarrow = box.offsetWidth && box.offsetWidth < NARROW;
  if (showlegend === false || named < 2 || !isNarrow) return { height };
  if (legend?.y > 1) return { height: height + 14 * named };
  return { height: height + 8 * named, margin: { ...margin, b: margin.b + 8 * named } };
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
  await itsTurn(box);
  if (box.wanted !== draw) return; // Newer data came meanwhile.
  box.drawnWidth = box.offsetWidth;
  await draw();
  link(Plotly, box, data.group);
  box.redraw = draw;
  watchTheme();
  watchWidth(Plotly, box);
}
