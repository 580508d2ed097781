// Camera, canvases and pointer input. One camera serves all canvases, so that they move together.

const camera = { x: 0, y: 0, scale: 8, fitted: false }; // metres, pixels per metre; not moved since it was fitted
const [FIT_PX, MIN_FIT_M] = [56, 36]; // room for labels around the futures; surroundings of a standing agent
const SCALES = [0.4, 120];
const CLICK_PX = 5; // a click that moves less is no drag

/** A canvas seen through the camera, `width` by `height` CSS pixels, with `ratio` canvas pixels per CSS pixel. */
class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d", { alpha: false });
  }

  /** Set the size in canvas pixels; changing it clears the canvas. */
  setSize(width, height, ratio) {
    const { canvas } = this;
    [this.width, this.height, this.ratio] = [width / ratio, height / ratio, ratio];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  }

  /** Draw in metres, y up. */
  useMetres() {
    const s = this.ratio * camera.scale;
    const [x, y] = [this.ratio * this.width / 2 - camera.x * s, this.ratio * this.height / 2 + camera.y * s];
    this.ctx.setTransform(s, 0, 0, -s, x, y);
  }

  /** Draw in CSS pixels, y down. */
  usePixels() {
    this.ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
  }

  toPixels([x, y]) {
    return [this.width / 2 + (x - camera.x) * camera.scale, this.height / 2 - (y - camera.y) * camera.scale];
  }

  toMetres([x, y]) {
    return [camera.x + (x - this.width / 2) / camera.scale, camera.y - (y - this.height / 2) / camera.scale];
  }

  /** Whether a point in metres is on the canvas, extended by `margin` metres. */
  contains([x, y], margin = 0) {
    const [w, h] = [this.width / 2 / camera.scale + margin, this.height / 2 / camera.scale + margin];
    return Math.abs(x - camera.x) <= w && Math.abs(y - camera.y) <= h;
  }

  clear(color) {
    this.usePixels();
    this.ctx.fillStyle = color;
    this.ctx.fillRect(0, 0, this.width, this.height);
  }

  /** Stroke a line through points in metres; points less than a pixel apart are skipped. */
  strokeLine(points, { color, width, dash = [], alpha = 1, cap = "butt" }) {
    const { ctx } = this;
    this.usePixels();
    Object.assign(ctx, { strokeStyle: color, lineWidth: width, globalAlpha: alpha, lineCap: cap, lineJoin: "round" });
    ctx.setLineDash(dash);
    ctx.beginPath();
    this.tracePixels(points);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
  }

  tracePixels(points) {
    let before = [Infinity, Infinity];
    points.forEach((point, i) => {
      const [x, y] = this.toPixels(point);
      if (i && i < points.length - 1 && Math.abs(x - before[0]) + Math.abs(y - before[1]) < 1) return;
      before = [x, y];
      if (i) this.ctx.lineTo(x, y);
      else this.ctx.moveTo(x, y);
    });
  }

  /** Whether a pixel is on a line through points in metres that is `width` pixels wide. */
  isOnLine(pixel, points, width) {
    this.usePixels();
    Object.assign(this.ctx, { lineWidth: width, lineCap: "round" });
    this.ctx.setLineDash([]);
    this.ctx.beginPath();
    this.tracePixels(points);
    return this.ctx.isPointInStroke(...pixel.map((value) => value * this.ratio));
  }

  fillCircle(point, radius, color, border, width) {
    const { ctx } = this;
    this.usePixels();
    ctx.beginPath();
    ctx.arc(...this.toPixels(point), radius, 0, 2 * Math.PI);
    this.fillPath(color, border, width);
  }

  fillPath(color, border, width) {
    Object.assign(this.ctx, { fillStyle: color, strokeStyle: border, lineWidth: width });
    this.ctx.fill();
    this.ctx.stroke();
  }
}

/** A part of the page that shows the scene with the forecast of model `m` (-1: no forecast). */
class Pane extends Surface {
  constructor(parent, m) {
    super(document.createElement("canvas"));
    Object.assign(this.canvas, { tabIndex: 0, ariaLabel: `Scene${m >= 0 ? ` with the futures of ${index.models[m]}` : ""}` });
    this.canvas.setAttribute("role", "application");
    this.m = m;
    this.element = add(parent, "section");
    this.element.className = "pane";
    this.summary = add(this.element, "div");
    this.summary.className = "summary";
    this.chart = add(this.element, "div");
    this.chart.className = "stream";
    this.stage = add(this.element, "div");
    this.stage.className = "stage";
    this.stage.append(this.canvas);
    this.mapCache = new MapCache();
  }

  /** Match the canvas to its size on the screen. */
  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.stage;
    this.setSize(Math.round(clientWidth * ratio), Math.round(clientHeight * ratio), ratio);
  }

  /** Index in `Scene.forecasts`: for the recorded scene, an earlier time, or without some road users. */
  get forecast() {
    if (this.isWhatIf) return this.m + index.models.length;
    return this.m >= 0 && state.layers.updates ? state.scene.latest(this.m, state.step) : this.m;
  }

  get isWhatIf() {
    return this.m >= 0 && state.layers.without && state.scene.without.length > 0;
  }
}

/** Append an element with text, which is never parsed as markup. */
function add(parent, tag, text = "") {
  const child = parent.appendChild(document.createElement(tag));
  child.textContent = text;
  return child;
}

/** Fit the camera to a track at the last observed step and its futures, predicted by any model and true. */
function fitCamera(scene, track, { width, height }) {
  const futures = scene.forecasts.flatMap((_, m) => scene.modes(m, track).flatMap(({ points }) => points));
  const points = [scene.position(track, scene.now), ...scene.path(track, scene.now, scene.last), ...futures];
  const [low, high] = [Math.min, Math.max].map((end) => [0, 1].map((axis) => points.reduce((best, p) => end(best, p[axis]), points[0][axis])));
  const room = (pixels) => Math.max(pixels - 2 * FIT_PX, 0.7 * pixels);
  const scales = [width, height].map((pixels, axis) => room(pixels || 600) / Math.max(high[axis] - low[axis], MIN_FIT_M));
  Object.assign(camera, { x: (low[0] + high[0]) / 2, y: (low[1] + high[1]) / 2, scale: Math.min(...scales), fitted: true });
}

/** Move the scene by pixels. */
function pan(dx, dy) {
  camera.x -= dx / camera.scale;
  camera.y += dy / camera.scale;
  camera.fitted = false;
}

/** Zoom while the point at a pixel stays in place. */
function zoomAt(pane, pixel, factor) {
  const before = pane.toMetres(pixel);
  camera.scale = Math.min(SCALES[1], Math.max(SCALES[0], camera.scale * factor));
  const after = pane.toMetres(pixel);
  camera.x += before[0] - after[0];
  camera.y += before[1] - after[1];
  camera.fitted = false;
}

/** Drag to pan, wheel or pinch to zoom, click without dragging to select; a `grabbed` object is dragged itself. */
function addPointerListeners(pane, { moved, clicked, hovered, grabbed }) {
  const { canvas } = pane;
  const pointers = new Map();
  let travelled = 0;
  let held = null; // called with each pixel that what is held is dragged to
  const pixelOf = (event) => [event.offsetX, event.offsetY];
  const spread = () => {
    const [a, b] = [...pointers.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, pixelOf(event));
    if (pointers.size === 1) travelled = 0;
    held = pointers.size === 1 ? grabbed(pane, pixelOf(event), event) : null;
    canvas.classList.add("dragging");
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return hovered(pane, pixelOf(event), event);
    const [x, y] = pixelOf(event);
    const apart = pointers.size === 2 ? spread() : 0;
    pointers.set(event.pointerId, [x, y]);
    travelled += Math.hypot(x - before[0], y - before[1]);
    if (held) return travelled < CLICK_PX ? null : held([x, y], event);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      zoomAt(pane, [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2], spread() / Math.max(apart, 1));
    }
    pan((x - before[0]) / pointers.size, (y - before[1]) / pointers.size);
    return moved();
  });
  const release = (event) => {
    const single = pointers.size === 1;
    if (!pointers.delete(event.pointerId)) return;
    canvas.classList.toggle("dragging", pointers.size > 0);
    if (event.type === "pointerup" && single && travelled < CLICK_PX) clicked(pane, pixelOf(event));
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => hovered(pane, null, null));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    zoomAt(pane, pixelOf(event), Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)));
    moved();
  }, { passive: false });
}
