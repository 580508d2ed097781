// Time, layers, theme, keyboard, and the address that leads back to what is seen.

const LAYERS = [
  ["map", "Map", true],
  ["agents", "Others", true],
  ["history", "History", true],
  ["truth", "Truth", true],
  ["modes", "Futures", true],
  ["others", "Others’ futures", true],
  ["band", "Uncertainty", true],
  ["labels", "Probabilities", true],
];
const NEEDS_MODEL = new Set(["modes", "others", "band", "labels"]);
const get = (id) => document.getElementById(id);

/** Go to a step of the open scene. */
function setStep(step) {
  const { scene } = state;
  if (!scene) return;
  state.step = Math.min(scene.last, Math.max(0, step));
  get("slider").value = state.step;
  tellTime();
  redraw();
  tellAddress();
}

function tellTime() {
  const { scene } = state;
  const time = get("time");
  const ahead = (state.step - scene.now) * scene.step_s;
  const sign = ahead > 0.001 ? "+" : ahead < -0.001 ? "−" : "";
  time.textContent = `${(state.step * scene.step_s).toFixed(1)} s `;
  add(time, "small", sign ? `now ${sign} ${Math.abs(ahead).toFixed(1)} s` : "now");
  const share = scene.last ? scene.now / scene.last : 0;
  get("now").style.left = `calc(8px + ${share} * (100% - 16px))`; // the thumb is 16 px wide
}

/** Play or pause; from the end it starts again. */
function setPlaying(playing) {
  state.playing = playing;
  get("play").textContent = playing ? "❚❚" : "▶";
  get("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  if (!playing) return tellAddress();
  if (state.step >= state.scene.last) setStep(0);
  let before = performance.now();
  let left = 0;
  const tick = (now) => {
    if (!state.playing) return;
    left += Math.min(now - before, 500) / 1000;
    before = now;
    const steps = Math.floor(left / state.scene.step_s + 1e-9);
    left -= steps * state.scene.step_s;
    if (steps) setStep(state.step + steps);
    if (state.step >= state.scene.last) setPlaying(false);
    else requestAnimationFrame(tick);
  };
  return requestAnimationFrame(tick);
}

/** What `#scene=ID&t=4.2` says: `{scene, t}`, null where it says nothing. */
function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const t = words.has("t") ? Number(words.get("t")) : NaN;
  return { scene: words.get("scene"), t: Number.isFinite(t) ? t : null };
}

/** Keep the address up to date, without a new entry in the history. While playing it would change too often. */
function tellAddress() {
  if (!state.scene || state.playing) return;
  const t = (state.step * state.scene.step_s).toFixed(1);
  const hash = `#scene=${encodeURIComponent(state.scene.id)}&t=${t}`;
  if (hash !== location.hash) history.replaceState(null, "", hash);
}

/** `light` or `dark`: as the reader chose, or as the system prefers. */
function themeName() {
  return state.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function applyTheme() {
  document.documentElement.dataset.theme = themeName();
  if (state.scene) tellLegend(state.scene, index.themes[themeName()]);
  redraw();
}

function listenToControls() {
  for (const [name, label, on] of LAYERS) {
    state.layers[name] = on;
    if (NEEDS_MODEL.has(name) && !index.models.length) continue;
    const chip = add(get("layers"), "label");
    const box = add(chip, "input");
    Object.assign(box, { type: "checkbox", checked: on, id: `layer-${name}` });
    chip.append(label);
    box.addEventListener("change", () => { state.layers[name] = box.checked; redraw(); });
  }
  get("slider").addEventListener("input", () => { setPlaying(false); setStep(get("slider").valueAsNumber); });
  get("play").addEventListener("click", () => setPlaying(!state.playing));
  get("fit").addEventListener("click", fit);
  get("open-list").addEventListener("click", (event) => {
    event.stopPropagation();
    document.body.classList.toggle("list-open");
  });
  get("theme").addEventListener("click", () => {
    state.theme = themeName() === "dark" ? "light" : "dark";
    applyTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  document.querySelector("main").addEventListener("click", () => document.body.classList.remove("list-open"));
  addEventListener("keydown", onKey);
  // A button that was clicked would take the next space for itself.
  addEventListener("click", (event) => { if (event.detail) event.target.closest("button, label")?.blur(); });
}

/** Arrows step time, space plays, j and k change the scene, f fits. */
function onKey(event) {
  const typing = event.target.matches("input:not([type=range]):not([type=checkbox]), select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !state.scene) return;
  const focused = event.target.matches("button, input[type=checkbox]");
  const step = (by) => { setPlaying(false); setStep(state.step + by * (event.shiftKey ? 10 : 1)); };
  const actions = {
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    Home: () => { setPlaying(false); setStep(0); },
    End: () => { setPlaying(false); setStep(state.scene.last); },
    " ": focused ? null : () => setPlaying(!state.playing),
    j: () => nextScene(1),
    k: () => nextScene(-1),
    f: fit,
    Escape: () => { document.body.classList.remove("list-open"); select(state.scene.focal); },
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}
