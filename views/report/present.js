// Presents the screens of the report one after another; arrow keys turn them. The address contains
// the number of the screen.
const show = document.getElementById("show");
const screens = [...document.querySelectorAll(".screen")];
const behind = document.querySelectorAll("main, .bar"); // out of reach while a screen is shown
const place = document.createComment("screen"); // where the shown screen belongs in the report
let shown = -1;
let focusedBefore = null; // the element that had the focus before the presentation

function putBack() {
  if (!place.isConnected) return;
  place.replaceWith(screens[shown]);
  refresh(screens[shown]);
}

// Draws the chart of a screen again, in the size of its present place.
function refresh(screen) {
  if (screen.matches(".chart")) drawChart(screen);
}

function stepsTo(number) {
  const steps = Object.assign(document.createElement("nav"), { className: "steps" });
  steps.setAttribute("aria-label", "Screens");
  screens.forEach((screen, at) => {
    const step = steps.appendChild(document.createElement("button"));
    step.className = at <= number ? "step past" : "step";
    step.title = screen.querySelector("h1, h2, strong")?.textContent ?? "";
    step.setAttribute("aria-label", `${at + 1}: ${step.title}`);
    step.tabIndex = -1;
    step.onclick = () => go(at);
  });
  steps.append(
    Object.assign(document.createElement("span"), { textContent: `${number + 1} / ${screens.length}` })
  );
  return steps;
}

async function go(number) {
  if (!screens.length) return;
  if (shown < 0) focusedBefore = document.activeElement;
  putBack();
  shown = Math.max(0, Math.min(screens.length - 1, number));
  const screen = screens[shown];
  screen.replaceWith(place);
  show.replaceChildren(screen, stepsTo(shown));
  show.hidden = false;
  behind.forEach((part) => (part.inert = true));
  document.body.style.overflow = "hidden";
  screen.tabIndex = -1;
  screen.focus({ preventScroll: true });
  history.replaceState(null, "", `#present-${shown + 1}`);
  refresh(screen);
}

function leave() {
  putBack();
  shown = -1;
  show.hidden = true;
  show.replaceChildren();
  behind.forEach((part) => (part.inert = false));
  document.body.style.overflow = "";
  history.replaceState(null, "", location.pathname + location.search);
  focusedBefore?.focus?.();
}

const KEYS = {
  ArrowRight: () => go(shown + 1), PageDown: () => go(shown + 1), " ": () => go(shown + 1),
  ArrowLeft: () => go(shown - 1), PageUp: () => go(shown - 1),
  Home: () => go(0), End: () => go(screens.length - 1), Escape: leave,
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isField = event.target.closest?.("input, select, textarea");
  if (event.key === "t" && !isField) return switchTheme();
  if (shown < 0) {
    if (event.key === "p" && !isField) go(0);
    return;
  }
  // The focused button or field keeps its own keys.
  const isOwnKey = isField || (event.key === " " && event.target.closest?.("button"));
  if (isOwnKey && event.key !== "Escape") return;
  if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

document.getElementById("present").onclick = () => go(0);

function readAddress() {
  const match = location.hash.match(/^#present(?:-(\d+))?$/);
  if (match) go(Number(match[1] ?? 1) - 1);
}
addEventListener("hashchange", readAddress);
readAddress();
