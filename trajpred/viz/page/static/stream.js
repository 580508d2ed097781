// Scores of successive forecasts over time: one small chart for each score, for the selected track.

const [CHART_PX, PLOT_PX] = [[160, 46], [5, 5, 6, 12]]; // width and height; margins left, right, top, bottom

/** Append an SVG element to one. */
function addShape(parent, tag, attributes) {
  const shape = parent.appendChild(document.createElementNS(parent.namespaceURI, tag));
  Object.entries(attributes).forEach(([name, value]) => shape.setAttribute(name, value));
  return shape;
}

/** Draw the scores of all updates; a click on one goes to its time. Models share the scale of each score. */
function drawStream(pane, scene) {
  const stream = scene.models[pane.m]?.stream;
  pane.chart.hidden = !stream || !state.layers.updates || pane.isWhatIf;
  pane.chart.replaceChildren();
  if (pane.chart.hidden) return;
  for (const [name, scores] of Object.entries(stream.scores)) {
    const values = scores[state.selected];
    const top = Math.max(...scene.models.flatMap((model) => model.stream?.scores[name][state.selected] ?? []), 0.1);
    const figure = add(pane.chart, "figure");
    const caption = add(figure, "figcaption", `${name} `);
    const at = stream.step.indexOf(scene.madeAt(pane.forecast));
    add(caption, "em", metricText(name, values[at]));
    const [width, height] = CHART_PX;
    const [left, right, above, below] = PLOT_PX;
    figure.insertAdjacentHTML("beforeend", `<svg width="${width}" height="${height}" role="img"></svg>`);
    const svg = figure.lastChild;
    svg.setAttribute("aria-label", `${name} of ${values.length} updates`);
    const x = (step) => left + (width - left - right) * (step - stream.step[0]) / (scene.now - stream.step[0]);
    const y = (value) => above + (height - above - below) * (1 - value / top);
    addShape(svg, "path", { d: `M${left} ${height - below}H${width - right}`, class: "axis" });
    const known = stream.step.map((step, u) => [step, values[u], u]).filter(([, value]) => value !== null);
    addShape(svg, "path", { d: known.map(([step, value], i) => `${i ? "L" : "M"}${x(step)} ${y(value)}`).join(""), class: "line" });
    for (const [step, value, u] of known) {
      const dot = addShape(svg, "circle", { cx: x(step), cy: y(value), r: u === at ? 4.5 : 3, class: u === at ? "chosen" : "" });
      addShape(dot, "title", {}).textContent = `${scene.time(step)}: ${metricText(name, value)}`;
      dot.addEventListener("click", () => setStep(step));
    }
    for (const [step, anchor] of [[stream.step[0], "start"], [scene.now, "end"]]) {
      const edge = addShape(svg, "text", { x: x(step), y: height - 1, "text-anchor": anchor });
      edge.textContent = scene.time(step);
    }
  }
}
