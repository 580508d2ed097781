// Placement of labels as in viz/labels.py: lengths are points of pictures, relative to the centre of the pane, y up.
// A box has the x and y of its centre, and half its width and height.

const LABEL_FONT = '600 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const POINT_PX = 12 / 7; // labels of pictures have 7 points

const toPaper = (pane, [x, y]) => [(x - pane.width / 2) / POINT_PX, (pane.height / 2 - y) / POINT_PX];
const fromPaper = (pane, [x, y]) => [pane.width / 2 + x * POINT_PX, pane.height / 2 - y * POINT_PX];

/** Obstacles for labels: points, marks to which labels could belong, and boxes that no label may cover. */
class Clutter {
  constructor(pane) {
    Object.assign(this, { pane, points: [], marks: [], boxes: [], window: [pane.width, pane.height].map((px) => px / 2 / POINT_PX) });
  }

  avoid(pixels) {
    this.points.push(...pixels.map((pixel) => toPaper(this.pane, pixel)));
  }

  /** Block the box around pixels; its content is a mark. */
  block(pixels) {
    const points = pixels.map((pixel) => toPaper(this.pane, pixel));
    const [low, high] = [Math.min, Math.max].map((end) => [0, 1].map((axis) => end(...points.map((point) => point[axis]))));
    const box = [0, 1].map((axis) => (low[axis] + high[axis]) / 2).concat([0, 1].map((axis) => (high[axis] - low[axis]) / 2));
    this.boxes.push(box);
    this.marks.push(box);
  }
}

/** Distance of two boxes, negative where they overlap. */
function boxDistance([ax, ay, aw, ah], [bx, by, bw, bh]) {
  const [dx, dy] = [Math.abs(ax - bx) - aw - bw, Math.abs(ay - by) - ah - bh];
  return Math.hypot(Math.max(dx, 0), Math.max(dy, 0)) + Math.min(Math.max(dx, dy), 0);
}

/** The cheapest candidate for a label of half a size, `{center, line}`, or null; see `place_labels` in viz/labels.py. */
function placeLabel(anchor, direction, half, { points, anchors, marks, boxes, window }) {
  const { turns, gaps, space, near, clear, places, cost } = index.placement;
  const covers = ([x, y], center) => Math.abs(x - center[0]) < half[0] + space && Math.abs(y - center[1]) < half[1] + space;
  const others = marks.filter(([x, y, w]) => w || x !== anchor[0] || y !== anchor[1]);
  const count = (list, test) => list.reduce((sum, one) => sum + (test(one) ? 1 : 0), 0);
  let best = { total: cost.box };
  for (const gap of gaps) {
    for (const degrees of turns) {
      const turn = degrees * Math.PI / 180;
      const ray = [Math.cos(direction + turn), Math.sin(direction + turn)];
      const inside = Math.min(...half.map((size, axis) => size / Math.max(Math.abs(ray[axis]), 1e-9)));
      const center = anchor.map((value, axis) => value + ray[axis] * (gap + inside));
      const box = [...center, ...half];
      const nearest = others.reduce((least, mark) => Math.min(least, boxDistance(box, mark)), Infinity);
      const needsLine = gap > near || nearest < gap + clear;
      const line = Array.from({ length: places }, (_, i) => anchor.map((value, axis) => value + ray[axis] * gap * (i + 1) / places));
      const isOutside = center.some((value, axis) => Math.abs(value) + half[axis] > window[axis]);
      let total = cost.gap * gap + cost.turn * Math.abs(turn) + cost.point * count(points, (point) => covers(point, center));
      total += cost.anchor * count(anchors, (point) => covers(point, center));
      total += cost.box * (count(boxes, (other) => boxDistance(box, other) < space) + isOutside);
      if (needsLine) total += cost.line + cost.crossed * count(boxes, (other) => line.some((at) => boxDistance([...at, 0, 0], other) <= 0));
      if (nearest < gap) total += cost.stranger;
      if (total < best.total) best = { total, center, line: needsLine ? line : null };
    }
  }
  return best.center ? best : null;
}

/** Write labels `{text, anchor, direction}` near their anchors (pixels, radians), with leader lines where needed. */
function drawLabels(pane, labels, colors, clutter) {
  const { ctx } = pane;
  pane.usePixels();
  Object.assign(ctx, { font: LABEL_FONT, textAlign: "center", textBaseline: "middle", lineJoin: "round" });
  const anchors = labels.map(({ anchor }) => toPaper(pane, anchor));
  clutter.marks.push(...anchors.map((anchor) => [...anchor, 0, 0]));
  labels.forEach(({ text, direction }, i) => {
    const half = [ctx.measureText(text).width / 2 + 2, 8].map((pixels) => pixels / POINT_PX);
    const found = placeLabel(anchors[i], direction, half, { ...clutter, anchors });
    if (!found) return;
    clutter.boxes.push([...found.center, ...half]);
    if (found.line) {
      clutter.points.push(...found.line);
      Object.assign(ctx, { strokeStyle: colors.leader, lineWidth: 0.8 });
      ctx.beginPath();
      ctx.moveTo(...labels[i].anchor);
      ctx.lineTo(...fromPaper(pane, found.line.at(-1)));
      ctx.stroke();
    }
    drawText(ctx, text, fromPaper(pane, found.center), colors.text, colors.halo);
  });
}

function drawText(ctx, text, pixel, color, halo) {
  Object.assign(ctx, { strokeStyle: halo, lineWidth: 3.5, fillStyle: color });
  ctx.strokeText(text, ...pixel);
  ctx.fillText(text, ...pixel);
}
