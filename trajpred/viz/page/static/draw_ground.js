// The map as a picture that is kept: playing needs it again and again, and panning only moves it.

const MARGIN = 0.25; // of width and height, drawn beyond every side so that panning has some way to go
const REST_MS = 140; // without zooming, until there is a new wide picture

class Ground {
  constructor() {
    this.wide = new Surface(document.createElement("canvas")); // of `made`, with margins
    this.made = { key: "", ...camera };
    this.exact = document.createElement("canvas"); // what a pane showed twice: a small source is copied faster
    this.exactly = "";
    this.before = "";
    this.rest = 0;
  }

  /** Draw the map on a pane, which covers it. */
  draw(pane, scene, colors) {
    const { canvas, ctx } = pane;
    const key = [scene.id, canvas.width, canvas.height, pane.ratio, themeName()].join(" ");
    const view = [key, camera.x, camera.y, camera.scale].join(" ");
    clearTimeout(this.rest);
    if (view === this.exactly) return this.copy(ctx, this.exact, 0, 0);
    if (key === this.made.key && camera.scale !== this.made.scale) {
      drawMap(pane, scene, colors); // in the middle of zooming, every picture would be too old at once
      this.rest = setTimeout(() => { this.made.key = ""; redraw(); }, REST_MS);
      return;
    }
    if (key !== this.made.key || !this.covers(pane)) this.make(pane, scene, colors, key);
    this.copy(ctx, this.wide.canvas, ...this.corner(pane));
    if (view === this.before) this.keep(canvas, view);
    this.before = view;
  }

  copy(ctx, picture, x, y) {
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(picture, x, y);
  }

  /** Where the wide picture begins on the pane, in whole pixels of its canvas: between them it would blur. */
  corner(pane) {
    const { canvas } = this.wide;
    const s = camera.scale * pane.ratio;
    return [
      Math.round((pane.canvas.width - canvas.width) / 2 + (this.made.x - camera.x) * s),
      Math.round((pane.canvas.height - canvas.height) / 2 - (this.made.y - camera.y) * s),
    ];
  }

  covers(pane) {
    const { canvas } = this.wide;
    const [left, top] = this.corner(pane);
    return left <= 0 && top <= 0 && left + canvas.width >= pane.canvas.width && top + canvas.height >= pane.canvas.height;
  }

  make(pane, scene, colors, key) {
    const { width, height } = pane.canvas;
    this.wide.setSize(width + 2 * Math.round(width * MARGIN), height + 2 * Math.round(height * MARGIN), pane.ratio);
    drawMap(this.wide, scene, colors);
    this.made = { key, ...camera };
  }

  keep(canvas, view) {
    [this.exact.width, this.exact.height, this.exactly] = [canvas.width, canvas.height, view];
    this.exact.getContext("2d", { alpha: false }).drawImage(canvas, 0, 0);
  }
}
