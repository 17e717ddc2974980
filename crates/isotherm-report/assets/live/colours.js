// The switch between dark and light, and bars of memory in the colours of its temperature.
const theme = (() => {
  const rules = [...document.styleSheets].flatMap(sheet => [...sheet.cssRules]).filter(
    rule => rule instanceof CSSMediaRule && rule.media.mediaText.includes('prefers-color-scheme: dark'));
  const own = rules.map(rule => rule.media.mediaText);
  const system = matchMedia('(prefers-color-scheme: dark)');
  let chosen = 'auto';
  return {
    isDark: () => chosen === 'dark' || chosen === 'auto' && system.matches,
    // Puts a theme in force: the rules for dark ones hold always, never, or as the system says.
    set(name) {
      chosen = name;
      rules.forEach((rule, nth) => {
        rule.media.mediaText = { dark: 'all', light: 'not all' }[name] ?? own[nth];
      });
      document.documentElement.style.colorScheme = name === 'auto' ? 'light dark' : name;
    },
  };
})();

const COLOURS = JSON.parse(document.getElementById('colours').textContent);
const PARTS = ['hot', 'warm', 'cold', 'unobservable', 'unknown'];
const SVG = 'http://www.w3.org/2000/svg';

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Draws the parts of some memory as a bar, whose whole length stands for `whole` bytes.
function drawBar(bar, temperature, whole) {
  let x = 0;
  bar.replaceChildren(...PARTS.flatMap(part => {
    const width = (temperature?.[part] ?? 0) / Math.max(whole, 1) * 100;
    if (!width) return [];
    const drawn = svg('rect', { x: x.toFixed(2), width: width.toFixed(2), height: 10, fill: COLOURS[part] });
    x += width;
    return [drawn];
  }));
  const words = PARTS.filter(part => temperature?.[part]).map(part => `${size(temperature[part])} ${part}`);
  bar.setAttribute('aria-label', words.join(', ') || 'not known yet');
}

// What the colours of bars mean.
function barLegend() {
  const words = {
    hot: `hot: accessed at ${COLOURS.hot_hz} Hz or more`, warm: 'warm: accessed less often', cold: 'cold: not accessed',
    unobservable: 'could not be observed', unknown: 'not known yet',
  };
  const entry = (sample, text) => {
    const box = svg('svg', { class: 'swatch', viewBox: '0 0 10 10', 'aria-hidden': 'true' });
    box.append(sample);
    const made = document.createElement('span');
    made.append(box, ' ', text);
    return made;
  };
  const line = kind => svg('path', { d: 'M0 5H10', class: kind });
  return [
    ...PARTS.map(part => entry(svg('rect', { width: 10, height: 10, fill: COLOURS[part] }), words[part])),
    entry(line('second'), 'trend of what is in memory'), entry(line('curve'), 'and of the working set'),
  ];
}
