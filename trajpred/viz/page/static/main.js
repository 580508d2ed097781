// Puts the parts together: which scene is open, and when it is drawn.

const state = {
  scene: null, number: -1, step: 0, selected: -1, playing: false,
  layers: {}, attention: { layer: null, head: null }, theme: null, hover: null, shown: [],
};
const panes = (index.models.length ? index.models.map((_, m) => m) : [-1]).map((m) => new Pane(get("panes"), m));

let asked = false;

/** Draw once before the screen is next shown, however often this is called until then. */
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (state.scene) panes.forEach((pane) => draw(pane, state.scene));
  });
}

function draw(pane, scene) {
  const { layers, step, selected } = state;
  const colors = index.themes[themeName()];
  pane.resize();
  const seen = scene.recorded(step);
  const shown = tracksShown(pane, scene, seen, layers.agents);
  const judged = Array.from({ length: scene.tracks }, (_, track) => track).filter((track) => track !== selected
    && !isRemoved(scene, track) && (track === scene.focal || (layers.agents && scene.role[track] === "SCORED")));
  if (layers.map) pane.ground.draw(pane, scene, colors);
  else clear(pane, colors);
  drawHeard(pane, scene, seen, colors);
  if (layers.history) drawHistories(pane, scene, shown.filter((track) => !isRemoved(scene, track)), seen, colors);
  const predicted = pane.m >= 0 && layers.modes;
  if (predicted && layers.others) judged.forEach((track) => drawFaintModes(pane, scene, track, colors));
  if (predicted && layers.band) drawBands(pane, scene, selected, colors);
  if (layers.truth) drawTruths(pane, scene, judged, colors);
  drawAgents(pane, scene, shown.filter((track) => track !== selected), seen, colors);
  drawRings(pane, scene, seen, colors);
  if (predicted) drawGhosts(pane, scene, selected, colors);
  if (predicted) drawModes(pane, scene, selected, step, colors);
  if (layers.truth) drawTruths(pane, scene, [selected], colors);
  drawAgents(pane, scene, shown.filter((track) => track === selected), seen, colors);
  const labels = { placed: [], ends: [], taken: [] };
  if (predicted && layers.labels) drawLabels(pane, scene, selected, colors, labels);
  drawShares(pane, scene, seen, colors, labels);
  drawScaleBar(pane, colors);
}

function fit() {
  panes.forEach((pane) => pane.resize());
  fitCamera(state.scene, panes[0]);
  redraw();
}

/** Choose whose futures are shown in full. */
function select(track) {
  state.selected = track;
  panes.forEach((pane) => tellModel(pane, state.scene));
  redraw();
}

/** Open a scene at a time in seconds, by default at its last observed step. */
async function showScene(number, t = null) {
  if (state.playing) setPlaying(false);
  const before = state.number;
  state.number = number;
  markList();
  let scene = null;
  try {
    scene = await openScene(number);
  } catch (error) {
    get("scene-id").textContent = `This scenario cannot be read: ${error.message}`;
    throw error;
  }
  if (state.number !== number) return; // another one was asked for meanwhile
  const line = index.scenes[number];
  Object.assign(state, { scene, hover: null });
  get("tip").hidden = true;
  get("slider").max = scene.last;
  get("scene-id").textContent = scene.id;
  get("scene-facts").textContent = [
    line.manoeuvre === "unknown" ? null : line.manoeuvre, line.class.replaceAll("_", " "), line.city,
    `${line.agents} road users`, `${(scene.observed * scene.step_s).toFixed(1)} s observed`,
  ].filter(Boolean).join(" · ");
  get("title").title = `${scene.id}\n${get("scene-facts").textContent}`;
  document.title = `${scene.id} · trajpred`;
  tellLegend(scene, index.themes[themeName()]);
  tellRemoved(scene);
  select(scene.focal);
  setStep(t === null ? scene.now : Math.round(t / scene.step_s));
  if (before !== number) fit();
}

/** The next scene of the list as it is filtered and sorted. */
function nextScene(by) {
  const { shown, number } = state;
  if (!shown.length) return;
  const at = shown.indexOf(number);
  const next = at < 0 ? 0 : Math.min(shown.length - 1, Math.max(0, at + by));
  if (shown[next] !== number) showScene(shown[next]);
}

/** Go where the address leads; without one, or with a wrong one, to the first of the list. */
function followAddress() {
  const { scene, t } = readAddress();
  const number = index.scenes.findIndex((line) => line.id === scene);
  if (number >= 0) showScene(number, t);
  else if (!state.scene) showScene(state.shown[0]);
}

listenToControls();
listenToList((number) => { document.body.classList.remove("list-open"); showScene(number); });
panes.forEach((pane) => listenToPointer(pane, {
  moved: redraw,
  hovered: hover,
  clicked: (where, pixel) => {
    const track = trackAt(where, state.scene, pixel);
    get("tip").hidden = true; // it would tell of what was
    select(track ?? state.scene.focal);
  },
}));
new ResizeObserver(redraw).observe(get("panes"));
addEventListener("hashchange", followAddress);
applyTheme();
followAddress();
