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
  ["attention", "Attention", false],
  ["without", "Without", false],
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
  tellAround();
  redraw();
}

function listenToControls() {
  for (const [name, label, on] of LAYERS) {
    state.layers[name] = on;
    if (NEEDS_MODEL.has(name) && !index.models.length) continue;
    if (name === "attention" && !index.heads.some(Boolean)) continue;
    if (name === "without" && !index.removes) continue;
    const chip = add(get("layers"), "label");
    const box = add(chip, "input");
    Object.assign(box, { type: "checkbox", checked: on, id: `layer-${name}` });
    add(chip, "span", label);
    box.addEventListener("change", () => switchLayer(name, box.checked));
    if (name === "attention") addHeads();
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

/** Show a layer or hide it; some change what is told around the scene, too. */
function switchLayer(name, on) {
  state.layers[name] = on;
  if (get("heads")) get("heads").hidden = !state.layers.attention;
  tellAround();
  redraw();
}

/** Legend, and what is said of each model. */
function tellAround() {
  if (!state.scene) return;
  tellLegend(state.scene, index.themes[themeName()]);
  panes.forEach((pane) => tellModel(pane, state.scene));
}

/** Which layer and which head of the attention is shown. */
function addHeads() {
  const choices = add(get("layers"), "span");
  Object.assign(choices, { id: "heads", hidden: true });
  ["layer", "head"].forEach((what, i) => {
    const select = add(choices, "select");
    select.id = `attention-${what}`;
    select.setAttribute("aria-label", `${what} of the attention`);
    add(select, "option", `all ${what}s`).value = "";
    const most = Math.max(...index.heads.map((counts) => counts?.[i] ?? 0));
    for (let n = 0; n < most; n++) add(select, "option", `${what} ${n + 1}`).value = n;
    select.addEventListener("change", () => {
      state.attention[what] = select.value === "" ? null : Number(select.value);
      tellAround();
      redraw();
    });
  });
}

/** Name those whom the scene can be shown without. */
function tellRemoved(scene) {
  const chip = get("layer-without")?.parentElement;
  if (!chip) return;
  chip.lastChild.textContent = `Without ${scene.removed.map((track) => kindOf(scene, track)).join(", ")}`;
  chip.title = `the futures as if ${removedInWords(scene)} had never been there (w)`;
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
    w: () => get("layer-without")?.click(),
    Escape: () => { document.body.classList.remove("list-open"); select(state.scene.focal); },
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}
