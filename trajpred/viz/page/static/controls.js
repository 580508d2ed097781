// Time, layers, theme, keyboard, and the address of the current view.

const LAYERS = [
  ["map", "Map", true],
  ["agents", "Others", true],
  ["history", "History", true],
  ["truth", "Truth", true],
  ["modes", "Futures", true],
  ["others", "Others’ futures", true],
  ["band", "Uncertainty", true],
  ["labels", "Probabilities", true],
  ["updates", "Updates", true],
  ["attention", "Attention", false],
  ["without", "Without", false],
];
const MODEL_LAYERS = new Set(["modes", "others", "band", "labels"]);
const PAN_PX = 60; // by an arrow key
const get = (id) => document.getElementById(id);

/** Go to a step of the open scene. */
function setStep(step) {
  const { scene } = state;
  if (!scene) return;
  state.step = Math.min(scene.last, Math.max(0, step));
  get("slider").value = state.step;
  get("time").textContent = scene.time(state.step);
  if (state.step === scene.zero) add(get("time"), "small", ` ${((scene.zero + 1) * scene.step_s).toFixed(1)} s observed`);
  const share = scene.last ? scene.now / scene.last : 0;
  get("now").style.left = `calc(8px + ${share} * (100% - 16px))`; // the thumb is 16 px wide
  if (index.streams) panes.forEach((pane) => updateSummary(pane, scene));
  extension.stepped?.();
  redraw();
  updateAddress();
}

/** Play or pause; at the end, play starts again. */
function setPlaying(playing) {
  state.playing = playing;
  get("play").textContent = playing ? "❚❚" : "▶";
  get("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  if (!playing) return updateAddress();
  if (state.step >= state.scene.last) setStep(0);
  let before = performance.now();
  let elapsed = 0;
  const tick = (now) => {
    if (!state.playing) return;
    elapsed += Math.max(0, Math.min(now - before, 500)) / 1000; // the first frame may have begun before
    before = now;
    const steps = Math.floor(elapsed / state.scene.step_s + 1e-9);
    elapsed -= steps * state.scene.step_s;
    if (steps) setStep(state.step + steps);
    if (state.step >= state.scene.last) setPlaying(false);
    else requestAnimationFrame(tick);
  };
  return requestAnimationFrame(tick);
}

/** Parse an address such as `#scene=ID&t=-0.7` into `{scene, t}`, null where missing. */
function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const t = words.has("t") ? Number(words.get("t")) : NaN;
  return { scene: words.get("scene"), t: Number.isFinite(t) ? t : null };
}

/** Write the current view to the address without a history entry; not while playing. */
function updateAddress() {
  if (!state.scene || state.playing) return;
  const t = state.scene.seconds(state.step).toFixed(state.scene.step_s < 0.09 ? 3 : 1);
  const hash = `#scene=${encodeURIComponent(state.scene.id)}&t=${t}${extension.address?.() ?? ""}`;
  if (hash !== location.hash) history.replaceState(null, "", hash);
}

/** `light` or `dark`, as chosen on the page or else in the system. */
function currentTheme() {
  return state.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function applyTheme() {
  document.documentElement.dataset.theme = currentTheme();
  updatePanels();
}

/** Update the legend and the summary of each model, and redraw. */
function updatePanels() {
  if (state.scene) {
    updateLegend(state.scene, index.themes[currentTheme()]);
    panes.forEach((pane) => updateSummary(pane, state.scene));
  }
  redraw();
}

function initControls() {
  for (const [name, label, on] of LAYERS) {
    state.layers[name] = on;
    if (MODEL_LAYERS.has(name) && !index.models.length) continue;
    if (name === "attention" && !index.heads.some(Boolean)) continue;
    if (name === "without" && !index.removes) continue;
    if (name === "updates" && !index.streams) continue;
    const chip = add(get("layers"), "label");
    const box = Object.assign(add(chip, "input"), { type: "checkbox", checked: on, id: `layer-${name}` });
    add(chip, "span", label);
    box.addEventListener("change", () => {
      state.layers[name] = box.checked;
      if (name === "attention") get("heads").hidden = !box.checked;
      updatePanels();
    });
    if (name === "attention") initHeads();
  }
  get("link").addEventListener("click", () => copyText(location.href, get("link")));
  get("save").addEventListener("click", savePicture);
  get("keys").addEventListener("click", () => get("help").showModal());
  get("more").addEventListener("click", () => document.body.classList.toggle("more-open"));
  get("slider").addEventListener("input", () => { setPlaying(false); setStep(get("slider").valueAsNumber); });
  get("play").addEventListener("click", () => setPlaying(!state.playing));
  get("fit").addEventListener("click", fit);
  get("open-list").addEventListener("click", (event) => {
    event.stopPropagation();
    if (document.body.classList.toggle("list-open")) get("search").focus();
  });
  get("theme").addEventListener("click", () => {
    state.theme = currentTheme() === "dark" ? "light" : "dark";
    applyTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
  document.querySelector("main").addEventListener("click", () => document.body.classList.remove("list-open"));
  addEventListener("keydown", onKey);
  // A focused control would handle the next keys itself; those that the mouse has used are done.
  addEventListener("click", (event) => { if (event.detail && !event.target.matches("select")) blurControl(); });
  addEventListener("change", (event) => { if (event.target.matches("select")) blurControl(); });
}

/** Build the selection of one layer and one head of the attention. */
function initHeads() {
  const choices = Object.assign(add(get("layers"), "span"), { id: "heads", hidden: true });
  ["layer", "head"].forEach((what, i) => {
    const select = Object.assign(add(choices, "select"), { id: `attention-${what}` });
    select.setAttribute("aria-label", `attention ${what}`);
    add(select, "option", `all ${what}s`).value = "";
    const count = Math.max(...index.heads.map((counts) => counts?.[i] ?? 0));
    for (let n = 0; n < count; n++) add(select, "option", `${what} ${n + 1}`).value = n;
    select.addEventListener("change", () => {
      state.attention[what] = select.value === "" ? null : Number(select.value);
      updatePanels();
    });
  });
}

/** Name the removed road users on their switch. */
function updateWithoutLabel(scene) {
  const chip = get("layer-without")?.parentElement;
  if (!chip) return;
  chip.lastChild.textContent = `Without ${scene.removed.map((track) => typeName(scene, track)).join(", ")}`;
  chip.title = `the forecast with ${trackNames(scene, scene.removed)} removed from the history (w)`;
}

/** Take the focus from a control in which nothing is typed. */
function blurControl() {
  const { activeElement } = document;
  if (activeElement.matches("button, select, canvas, [type=checkbox], [type=range]")) activeElement.blur();
}

/** Whether a key is for the browser, a dialog or a field, or comes before any scene. */
function isTyping(event) {
  const inField = event.target.matches("input:not([type=range]):not([type=checkbox]), select");
  return inField || event.ctrlKey || event.metaKey || event.altKey || !state.scene || document.querySelector("dialog[open]");
}

function onKey(event) {
  if (isTyping(event)) return;
  const focused = event.target.matches("button, input[type=checkbox]");
  const stopAt = (step) => { setPlaying(false); setStep(step); };
  const stride = event.shiftKey ? 10 : 1;
  const move = (dx, dy) => { pan(PAN_PX * dx, PAN_PX * dy); redraw(); };
  const zoom = (factor) => { zoomAt(panes[0], [panes[0].width / 2, panes[0].height / 2], factor); redraw(); };
  const moves = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const actions = {
    ArrowLeft: () => stopAt(state.step - stride),
    ArrowRight: () => stopAt(state.step + stride),
    ...(event.target.matches("canvas") && moves[event.key] ? { [event.key]: () => move(...moves[event.key]) } : {}),
    "+": () => zoom(1.25),
    "=": () => zoom(1.25), // plus without shift
    "-": () => zoom(0.8),
    n: () => selectNext(1),
    p: () => selectNext(-1),
    c: () => get("link").click(),
    s: savePicture,
    "/": () => { document.body.classList.add("list-open"); get("search").focus(); },
    "?": () => get("help").showModal(),
    Home: () => stopAt(0),
    End: () => stopAt(state.scene.last),
    " ": focused ? null : () => setPlaying(!state.playing),
    j: () => nextScene(1),
    k: () => nextScene(-1),
    f: fit,
    w: () => get("layer-without")?.click(),
    Escape: () => { document.body.classList.remove("list-open"); select(state.scene.focal); fit(); },
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}
