// Returns what is wrong with the page for its readers, as texts.
const faults = [];
const root = document.documentElement;
if (root.scrollWidth > root.clientWidth) faults.push(`it is ${root.scrollWidth} pixels wide, on a screen of ${root.clientWidth}`);
if (document.querySelectorAll("h1").length !== 1) faults.push("it has not one h1");
if (!document.title || root.lang !== "en") faults.push("it has no title or language");
for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
  if (field.autocapitalize !== "none") faults.push(`a phone begins with a capital letter: ${field.outerHTML}`);
  if (!field.labels.length && !field.getAttribute("aria-label")) faults.push(`no label: ${field.outerHTML}`);
}
for (const table of document.querySelectorAll("table")) {
  if (!table.caption || !table.querySelector("th[scope=col]")) faults.push(`no names: ${table.outerHTML.slice(0, 80)}`);
}
const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
if (new Set(ids).size !== ids.length) faults.push(`an id comes twice: ${ids}`);

// A colour as red, green, blue and opacity, from 0 to 1.
const parse = (text) => {
  const numbers = text.match(/[\d.]+/g).map(Number);
  const scale = text.startsWith("rgb") ? 255 : 1;
  return [...numbers.slice(0, 3).map((number) => number / scale), numbers.length > 3 ? numbers[3] : 1];
};
// WCAG 2.2: relative luminance and contrast ratio.
const luminance = (colour) => {
  const [red, green, blue] = colour.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (one, other) => {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
};
const background = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  return parse(getComputedStyle(document.documentElement).backgroundColor);
};
const check = (element, colour, what) => {
  const ratio = contrast(parse(colour), background(element));
  if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${what}`);
};
let texts = 0;
for (const element of document.body.querySelectorAll("*")) {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height) continue;
  const text = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const style = getComputedStyle(element);
  if (text.length || element.matches("input, select, button")) {
    texts += 1;
    check(element, style.color, text.map((node) => node.data).join(" ") || element.outerHTML.slice(0, 80));
  }
  if (element.placeholder) check(element, getComputedStyle(element, "::placeholder").color, element.placeholder);
  if (element.dataset.name) check(element, getComputedStyle(element, "::before").color, element.dataset.name);
  if (element.matches("polyline, path")) check(element.parentElement, style.stroke, "a picture");
}
if (texts < 10) faults.push(`only ${texts} texts were seen`);
return faults;
