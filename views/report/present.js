// Presenting: one idea a screen, by arrow keys alone. The address says which screen it is.
const show = document.getElementById("show");
const templates = [...document.querySelectorAll("template.slides")];
const slides = templates.flatMap((one) => [...one.content.children]);
const behind = document.querySelectorAll("main, .bar"); // out of reach while something is shown
let shown = -1;
let came = null; // where the focus was before

function zoomed() {
  return Math.min(2.2, Math.max(1.15, innerWidth / 850));
}

async function go(number) {
  if (shown < 0) came = document.activeElement;
  shown = Math.max(0, Math.min(slides.length - 1, number));
  const slide = slides[shown].cloneNode(true);
  const steps = document.createElement("nav");
  steps.className = "steps";
  steps.setAttribute("aria-label", "Screens");
  slides.forEach((one, at) => {
    const step = steps.appendChild(document.createElement("button"));
    step.className = at <= shown ? "step past" : "step";
    step.title = one.querySelector("h2").textContent;
    step.setAttribute("aria-label", `${at + 1}: ${step.title}`);
    step.tabIndex = -1;
    step.onclick = () => go(at);
  });
  const place = steps.appendChild(document.createElement("span"));
  place.textContent = `${shown + 1} / ${slides.length}`;
  show.replaceChildren(slide, steps);
  show.hidden = false;
  behind.forEach((one) => (one.inert = true));
  document.body.style.overflow = "hidden";
  slide.tabIndex = -1;
  slide.focus({ preventScroll: true });
  history.replaceState(null, "", `#present-${shown + 1}`);
  await fill(slide);
}

async function fill(slide) {
  for (const box of slide.querySelectorAll(".plot[data-chart]")) {
    await draw(box, box.dataset.chart, box.dataset.figure, zoomed());
  }
  for (const box of slide.querySelectorAll(".playback")) {
    const player = await openPlayback(box, zoomed());
    if (slide.isConnected) player.play();
  }
}

function leave() {
  shown = -1;
  show.hidden = true;
  behind.forEach((one) => (one.inert = false));
  show.replaceChildren();
  document.body.style.overflow = "";
  history.replaceState(null, "", location.pathname + location.search);
  came?.focus?.();
}

rethemed.add(() => {
  const slide = show.querySelector(".slide");
  if (shown >= 0 && slide) {
    slide.querySelectorAll(".plot[data-chart]").forEach((box) =>
      draw(box, box.dataset.chart, box.dataset.figure, zoomed())
    );
  }
});

const KEYS = {
  ArrowRight: () => go(shown + 1), PageDown: () => go(shown + 1), " ": () => go(shown + 1),
  ArrowLeft: () => go(shown - 1), PageUp: () => go(shown - 1),
  Home: () => go(0), End: () => go(slides.length - 1), Escape: leave,
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typed = event.target.closest?.("input, select, textarea");
  if (event.key === "t" && !typed) return switchTheme();
  if (shown < 0) {
    if (event.key === "p" && !typed) go(0);
    return;
  }
  // A button or a slider that has the focus keeps its own keys.
  const own = typed || (event.key === " " && event.target.closest?.("button"));
  if (own && event.key !== "Escape") return;
  if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

document.getElementById("present").onclick = () => go(0);

function readAddress() {
  const asked = location.hash.match(/^#present(?:-(\d+))?$/);
  if (asked) go(Number(asked[1] ?? 1) - 1);
}
addEventListener("hashchange", readAddress);
readAddress();
