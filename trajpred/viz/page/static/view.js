// What part of the scene is seen: one camera for all canvases, so that they move together.

const camera = { x: 0, y: 0, scale: 8 }; // metres, and pixels per metre
const SCALES = [0.4, 120];

/** A canvas seen through the camera: `width` and `height` in pixels of the page, `ratio` of its own to each. */
class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d", { alpha: false });
  }

  /** Give the canvas a size in its own pixels; what was drawn is lost if it changes. */
  setSize(width, height, ratio) {
    const { canvas } = this;
    [this.width, this.height, this.ratio] = [width / ratio, height / ratio, ratio];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  }

  /** Draw in metres, y up. */
  inMetres() {
    const s = this.ratio * camera.scale;
    const [x, y] = [this.ratio * this.width / 2 - camera.x * s, this.ratio * this.height / 2 + camera.y * s];
    this.ctx.setTransform(s, 0, 0, -s, x, y);
  }

  /** Draw in pixels, y down. */
  inPixels() {
    this.ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
  }

  /** Metres -> pixels. */
  toPixels([x, y]) {
    return [this.width / 2 + (x - camera.x) * camera.scale, this.height / 2 - (y - camera.y) * camera.scale];
  }

  /** Pixels -> metres. */
  toMetres([x, y]) {
    return [camera.x + (x - this.width / 2) / camera.scale, camera.y - (y - this.height / 2) / camera.scale];
  }

  /** Whether a point in metres is on the canvas or within `margin` metres of it. */
  holds([x, y], margin = 0) {
    const [w, h] = [this.width / 2 / camera.scale + margin, this.height / 2 / camera.scale + margin];
    return Math.abs(x - camera.x) <= w && Math.abs(y - camera.y) <= h;
  }
}

/** A place in the page that shows the scene with the forecast of one model (`m` -1: none). */
class Pane extends Surface {
  constructor(parent, m) {
    super(document.createElement("canvas"));
    this.m = m;
    this.element = parent.appendChild(document.createElement("section"));
    this.element.className = "pane";
    this.said = this.element.appendChild(document.createElement("div"));
    this.said.className = "said";
    this.stage = this.element.appendChild(document.createElement("div"));
    this.stage.className = "stage";
    this.stage.append(this.canvas);
    this.ground = new Ground();
  }

  /** Match the canvas to its place on the screen. */
  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.stage;
    this.setSize(Math.round(clientWidth * ratio), Math.round(clientHeight * ratio), ratio);
  }

  /** Which forecast is shown: the model's as seen, or its other one without somebody (see `Scene.modes`). */
  get told() {
    return state.layers.without && state.scene.without.length ? this.m + index.models.length : this.m;
  }
}

/** Show all that is told of the focal agent, which stands at the origin. */
function fitCamera(scene, pane) {
  const side = Math.min(pane.width, pane.height) || 600;
  Object.assign(camera, { x: 0, y: 0, scale: side / (2 * scene.radius_m) });
}

/** Keep the point under the pointer where it is while the scale changes. */
function zoomAt(pane, pixel, factor) {
  const before = pane.toMetres(pixel);
  camera.scale = Math.min(SCALES[1], Math.max(SCALES[0], camera.scale * factor));
  const after = pane.toMetres(pixel);
  camera.x += before[0] - after[0];
  camera.y += before[1] - after[1];
}

/** Drag to move, wheel to zoom (two fingers too), a click without a drag to choose. */
function listenToPointer(pane, { moved, clicked, hovered }) {
  const { canvas } = pane;
  const fingers = new Map();
  let travelled = 0;
  const at = (event) => [event.offsetX, event.offsetY];
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    if (fingers.size === 1) travelled = 0;
    canvas.classList.add("dragging");
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return hovered(pane, at(event), event);
    const [x, y] = at(event);
    const apart = fingers.size === 2 ? spread() : 0;
    fingers.set(event.pointerId, [x, y]);
    travelled += Math.hypot(x - before[0], y - before[1]);
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()];
      zoomAt(pane, [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2], spread() / Math.max(apart, 1));
    }
    camera.x -= (x - before[0]) / camera.scale / fingers.size;
    camera.y += (y - before[1]) / camera.scale / fingers.size;
    return moved();
  });
  const release = (event) => {
    const alone = fingers.size === 1;
    if (!fingers.delete(event.pointerId)) return;
    canvas.classList.toggle("dragging", fingers.size > 0);
    if (event.type === "pointerup" && alone && travelled < 5) clicked(pane, at(event));
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => hovered(pane, null, null));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    zoomAt(pane, at(event), Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)));
    moved();
  }, { passive: false });
}
