// Taking the current view elsewhere: a link, and a picture.

const HEADER_PX = 42; // two lines of text above each scene of a saved picture

/** Copy a text and confirm on a button; if the browser forbids it, show the text. */
async function copyText(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  } catch {
    prompt(label, text);
  }
}

/** Save the scenes as they are arranged on the screen, below their names and metrics, as a PNG. */
function savePicture() {
  const { scene } = state;
  const colors = index.themes[currentTheme()];
  const ratio = panes[0].ratio;
  const outer = get("panes").getBoundingClientRect();
  const places = panes.map(({ stage }) => stage.getBoundingClientRect());
  const top = Math.min(...places.map((place) => place.top)) - HEADER_PX;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: Math.round(ratio * outer.width), height: Math.round(ratio * (outer.bottom - top)) });
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = colors.background;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  panes.forEach(({ canvas: picture, summary }, i) => {
    const [x, y] = [places[i].left - outer.left, places[i].top - top];
    ctx.drawImage(picture, Math.round(ratio * x), Math.round(ratio * y));
    Object.assign(ctx, { font: `${12 * ratio}px system-ui, sans-serif`, fillStyle: colors.ink });
    [scene.id, [...summary.children].map((part) => part.textContent).join("   ")].forEach((text, line) => {
      ctx.fillText(text, ratio * (x + 8), ratio * (y - 26 + 17 * line), ratio * (places[i].width - 16));
    });
  });
  const name = `${scene.id}_${scene.seconds(state.step).toFixed(1)}s.png`.replace(/[^\w.-]/g, "_");
  Object.assign(document.createElement("a"), { href: canvas.toDataURL("image/png"), download: name }).click();
}
