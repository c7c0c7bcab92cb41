// Plays an experiment as it went, at any speed: who has the turn, who compiles, how losses fall.
const WHOLE_SECONDS = 40; // that a playback takes unless its reader wants otherwise
const FRAME = 80; // milliseconds between two pictures

function atWork(run, time) {
  // Later entries win: an evaluation or a compilation lies within a turn.
  return run.spans.filter(([, start, end]) => start <= time && time < end).at(-1);
}

function stepsDone(run, time) {
  let done = 0;
  for (const [kind, start, end, first, count] of run.spans) {
    if (kind !== "training" || start > time) continue;
    const share = end > start ? Math.min(1, (time - start) / (end - start)) : 1;
    done = Math.max(done, first + count * share);
  }
  return done;
}

function pointsUpTo(run, done) {
  let count = 0;
  while (count < run.steps.length && run.steps[count] < done) count++;
  return count;
}

function clock(seconds) {
  const minutes = Math.floor(seconds / 60);
  return minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${seconds.toFixed(1)} s`;
}

const WORDS = { training: "has the turn", compiling: "compiling", evaluating: "evaluating" };

function element(tag, className, parent) {
  return parent.appendChild(Object.assign(document.createElement(tag), { className }));
}

class Playback {
  constructor(box, data) {
    Object.assign(this, { box, data, time: 0, playing: false });
    this.speed = Math.max(1, data.seconds / WHOLE_SECONDS);
    this.build();
    rethemed.add(() => box.isConnected && this.layout());
  }

  build() {
    const { box, data } = this;
    box.replaceChildren();
    const controls = element("div", "controls", box);
    this.button = element("button", "", controls);
    this.button.onclick = () => (this.playing ? this.pause() : this.play());
    this.button.textContent = "Play";
    const speeds = element("select", "", controls);
    speeds.setAttribute("aria-label", "Speed");
    for (const speed of new Set([this.speed, 1, 2, 5, 10, 30, 100])) {
      speeds.append(new Option(`${+speed.toPrecision(2)} x as fast`, speed));
    }
    speeds.onchange = () => (this.speed = Number(speeds.value));
    this.range = element("input", "", controls);
    Object.assign(this.range, { type: "range", min: 0, max: data.seconds, step: "any", value: 0 });
    this.range.setAttribute("aria-label", "Time");
    this.range.oninput = () => this.show(Number(this.range.value));
    this.clock = element("span", "clock", controls);
    const list = element("div", "", box);
    this.rows = data.runs.map((run) => {
      const row = element("div", "run", list);
      const name = element("div", "name", row);
      name.append(run.label);
      const what = element("span", "what", name);
      const done = element("div", "done", element("div", "track", row));
      done.style.background = run.color;
      return { row, what, done, total: stepsDone(run, Infinity) || 1 };
    });
    this.plot = element("div", "plot", box);
    this.hasLosses = data.runs.some((run) => run.losses.length);
    if (!this.hasLosses) this.plot.remove();
    this.layout();
  }

  async layout() {
    const Plotly = await library;
    if (!this.box.isConnected || !this.hasLosses) return this.show(this.time);
    const zoom = zoomOf(this.box);
    const losses = this.data.runs.flatMap((run) => run.losses).filter((one) => one !== null);
    const steps = this.data.runs.flatMap((run) => run.steps);
    const low = Math.min(...losses);
    const high = Math.max(...losses);
    const margin = 0.05 * (high - low || 1);
    const layout = {
      xaxis: { title: { text: "Step" }, range: [0, Math.max(...steps, 1)], showgrid: false },
      yaxis: { title: { text: "Loss" }, range: [low - margin, high + margin] },
      showlegend: false,
      hovermode: "x unified",
    };
    const traces = this.data.runs.map((run) => ({
      type: "scatter", mode: "lines", name: run.label, x: [], y: [],
      line: { color: run.color, dash: run.dash, width: 1.8 * zoom },
    }));
    const made = sized(layout, this.plot, zoom);
    await Plotly.react(this.plot, traces, zoom === 1 ? { ...made, height: 340 } : made, config);
    this.shown = null;
    this.show(this.time);
  }

  show(time) {
    this.time = Math.min(time, this.data.seconds);
    this.range.value = this.time;
    this.clock.textContent = `${clock(this.time)} of ${clock(this.data.seconds)}`;
    const counts = [];
    this.data.runs.forEach((run, at) => {
      const { row, what, done, total } = this.rows[at];
      const steps = stepsDone(run, this.time);
      const span = atWork(run, this.time);
      row.className = `run ${span ? (span[0] === "compiling" ? "compiling" : "turn") : ""}`;
      const waits = steps >= total ? "done" : steps > 0 ? "waits for its turn" : "not begun";
      const took = span?.[0] === "compiling" ? ` ${clock(this.time - span[1])}` : "";
      what.textContent = span ? `${WORDS[span[0]]}${took}` : waits;
      done.style.width = `${(100 * steps) / total}%`;
      counts.push(pointsUpTo(run, steps));
    });
    if (this.hasLosses && this.plot.data && counts.join() !== this.shown) {
      this.shown = counts.join();
      const cut = (name) => this.data.runs.map((run, at) => run[name].slice(0, counts[at]));
      window.Plotly.restyle(this.plot, { x: cut("steps"), y: cut("losses") });
    }
  }

  play() {
    if (this.time >= this.data.seconds) this.show(0);
    this.playing = true;
    this.button.textContent = "Pause";
    let before = performance.now();
    const tick = () => {
      if (!this.playing || !this.box.isConnected) return this.pause();
      const now = performance.now();
      this.show(this.time + ((now - before) / 1000) * this.speed);
      before = now;
      if (this.time >= this.data.seconds) return this.pause();
      setTimeout(tick, FRAME);
    };
    tick();
  }

  pause() {
    this.playing = false;
    this.button.textContent = this.time >= this.data.seconds ? "Play again" : "Play";
  }
}

async function openPlayback(box) {
  const data = (await figures).get(box.dataset.playback).playback;
  box.player ??= new Playback(box, data);
  return box.player;
}

const sightOfPlayback = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting && !target.player) openPlayback(target);
  }
});
document.querySelectorAll("main .playback").forEach((box) => sightOfPlayback.observe(box));
