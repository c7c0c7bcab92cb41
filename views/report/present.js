// Presents the report: its screens one after another, by arrow keys. The address has the screen.
const show = document.getElementById("show");
const screens = [...document.querySelectorAll(".screen")];
const behind = document.querySelectorAll("main, .bar"); // out of reach while a screen is shown
const place = document.createComment("screen"); // where the shown screen belongs in the report
let shown = -1;
let came = null; // where the focus was before

function putBack() {
  if (!place.isConnected) return;
  place.replaceWith(screens[shown]);
  refresh(screens[shown]);
}

// The charts of a screen, in the size of where it is now.
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
  if (shown < 0) came = document.activeElement;
  putBack();
  shown = Math.max(0, Math.min(screens.length - 1, number));
  const screen = screens[shown];
  screen.replaceWith(place);
  show.replaceChildren(screen, stepsTo(shown));
  show.hidden = false;
  behind.forEach((one) => (one.inert = true));
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
  behind.forEach((one) => (one.inert = false));
  document.body.style.overflow = "";
  history.replaceState(null, "", location.pathname + location.search);
  came?.focus?.();
}

const KEYS = {
  ArrowRight: () => go(shown + 1), PageDown: () => go(shown + 1), " ": () => go(shown + 1),
  ArrowLeft: () => go(shown - 1), PageUp: () => go(shown - 1),
  Home: () => go(0), End: () => go(screens.length - 1), Escape: leave,
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
