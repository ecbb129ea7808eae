// What is wrong with how the page looks, a line each.
const faults = [];
const fault = (what, element) => faults.push(`${what}: ${element.tagName} ${element.textContent.trim().slice(0, 60)}`);
const shown = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 0;
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);

// Nothing sticks out of the window, but within what scrolls.
for (const element of document.querySelectorAll("body *")) {
  if (!shown(element) || element.closest(".scroll > *")) continue;
  const { left, right } = element.getBoundingClientRect();
  if (left < -1 || right > width + 1) fault("outside the window", element);
}

// The first column of numbers of a table is seen without scrolling.
for (const header of document.querySelectorAll(".sorts th.number")) {
  const isFirst = header === header.parentElement.querySelector(".number");
  if (!isFirst || !shown(header)) continue;
  const right = header.closest(".scroll").getBoundingClientRect().right;
  if (header.getBoundingClientRect().right > right + 1) fault("out of sight", header);
}

// One drawing of each chart; in it, all text is inside, and no text lies on another.
for (const figure of document.querySelectorAll("figure")) {
  const drawings = Array.from(figure.querySelectorAll("svg:not(.key)")).filter(shown);
  if (drawings.length !== 1) fault(`${drawings.length} drawings`, figure);
  for (const drawing of drawings) {
    if (!drawing.querySelector("title").textContent) fault("no title", drawing);
    const frame = drawing.getBoundingClientRect();
    const texts = Array.from(drawing.querySelectorAll("text"));
    if (texts.length < 8) fault(`${texts.length} texts`, drawing);
    const boxes = texts.map((text) => text.getBoundingClientRect());
    boxes.forEach((box, index) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        fault("cut off", texts[index]);
      boxes.slice(0, index).forEach((other, at) => {
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        // A line of text is higher than its letters.
        if (across > 1 && down > 0.3 * box.height) fault(`on ${texts[at].textContent}`, texts[index]);
      });
    });
  }
}

// Contrast of all text with what it lies on: 4.5 by the guidelines for accessible content.
const parts = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
const luminance = (colour) => {
  const [red, green, blue] = parts(colour).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
  return "rgb(255, 255, 255)";
};
let texts = 0;
for (const element of document.querySelectorAll("body *:not(script)")) {
  const own = Array.from(element.childNodes).some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  if (!own || !shown(element) || element.closest("title, desc")) continue;
  const style = getComputedStyle(element);
  const [mine, other] = [luminance(element.closest("svg") ? style.fill : style.color), luminance(ground(element))];
  const contrast = (Math.max(mine, other) + 0.05) / (Math.min(mine, other) + 0.05);
  if (!(contrast >= 4.5)) fault(`contrast ${contrast.toFixed(2)}`, element);
  texts += 1;
}
if (texts < 100) faults.push(`only ${texts} texts`);
return faults.join("\n");
