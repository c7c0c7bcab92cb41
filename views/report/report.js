// The page of a report: unpacks its data, and draws charts when they come into sight.
const nonce = document.currentScript.nonce;

async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (character) =>
    character.charCodeAt(0)
  );
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const library = unpacked("plotly-js").then((code) => {
  const script = document.createElement("script");
  script.nonce = nonce;
  script.textContent = code;
  document.head.append(script);
  return window.Plotly;
});
const figures = unpacked("figures").then(
  (text) => new Map(JSON.parse(text).map((figure) => [figure.id, figure]))
);

function isDark() {
  const chosen = document.documentElement.style.colorScheme;
  if (chosen) return chosen === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// Larger letters while presenting.
function zoomOf(box) {
  return box.closest("#show") ? Math.min(2.2, Math.max(1.15, innerWidth / 850)) : 1;
}

// The layout in the colours of the page, in the size of its letters.
function sized(layout, box, zoom) {
  const { height, font, ...made } = themed(layout, box);
  const margin = { l: 8, r: 12, t: 36 * zoom, b: 8, ...(zoom === 1 ? layout.margin : {}), autoexpand: true };
  const fixed = zoom === 1 ? { height: Math.max(height ?? 340, 300) } : {};
  return { ...made, ...fixed, margin, font: { ...font, size: 12 * zoom } };
}

function larger(data, zoom) {
  if (zoom === 1) return data;
  return data.map((trace) => {
    const line = trace.line?.width && { ...trace.line, width: trace.line.width * zoom };
    const size = trace.marker?.size;
    const marker = typeof size === "number" && { ...trace.marker, size: size * zoom };
    return { ...trace, ...(line && { line }), ...(marker && { marker }) };
  });
}

const config = { displaylogo: false, responsive: true, showSendToCloud: false };

async function draw(box, id, name) {
  const [Plotly, all] = await Promise.all([library, figures]);
  const known = all.get(id).figures;
  const figure = structuredClone(known[name] ?? Object.values(known)[0]);
  const group = box.closest("article")?.id ?? id; // a screen stands alone
  const zoom = zoomOf(box);
  const layout = asOthers(box, group, sized(figure.layout, box, zoom));
  await Plotly.react(box, larger(figure.data, zoom), layout, config);
  link(Plotly, box, group);
}

function drawChart(chart) {
  const pressed = chart.querySelector('button[aria-pressed="true"]');
  chart.drawn = true;
  return draw(chart.querySelector(".plot"), chart.dataset.chart, pressed?.dataset.figure ?? "");
}

const charts = [...document.querySelectorAll(".chart")];
for (const chart of charts) {
  const buttons = [...chart.querySelectorAll(".choice button")];
  buttons.forEach((button, at) => {
    button.setAttribute("aria-pressed", at === 0);
    button.onclick = () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", other === button));
      drawChart(chart);
    };
  });
}

const seen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && !target.drawn) drawChart(target);
    }
  },
  { rootMargin: "400px" }
);
charts.forEach((chart) => seen.observe(chart));

function recolour() {
  charts.filter((chart) => chart.drawn).forEach(drawChart);
}

function switchTheme() {
  document.documentElement.style.colorScheme = isDark() ? "light" : "dark";
  recolour();
}

document.getElementById("theme").onclick = switchTheme;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

// Paper is white: every chart is drawn in dark letters before it is printed.
async function drawAllForPaper() {
  document.documentElement.style.colorScheme = "light";
  for (const chart of charts) await drawChart(chart);
  for (const chart of charts) await window.Plotly.Plots.resize(chart.querySelector(".plot"));
  return true;
}

document.getElementById("print").onclick = async () => {
  const before = document.documentElement.style.colorScheme;
  await drawAllForPaper();
  window.print();
  document.documentElement.style.colorScheme = before;
  recolour();
};

document.getElementById("data").onclick = () => {
  const packed = atob(document.getElementById("breakeven-runs").textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: "application/zip" }));
  link.download = "runs.zip";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
};
