// The pictures over time below the heatmap. They show the time of the heatmap, and a time can be chosen in them.
function timePanels({ marks, choose, zoom, reset }) {
  const NS = 'http://www.w3.org/2000/svg';
  const panels = [...document.querySelectorAll('svg.panel')].map(panel => {
    const picture = panel.ownerSVGElement, all = panel.getAttribute('viewBox');
    const [x, y, width, height] = all.split(' ').map(Number);
    const place = (name, bottom) => [...picture.querySelectorAll(name)].find(
      group => Number(group.dataset.x) === x && Math.abs(Number(group.dataset.y) - bottom) < 0.5);
    const times = place('g.times', y + height), moments = place('g.moments', y);
    const [start, end] = [Number(panel.dataset.start), Number(panel.dataset.end)];
    const labels = [...times.childNodes], marked = moments ? [...moments.childNodes] : [];
    const own = { times, labels, moments, marked };
    return { panel, picture, all, x, y, width, height, ...own, start, end, t0: start, t1: end };
  });
  const element = (name, attributes, text) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // The labels of the marks of a part of the time.
  function labelMarks(p, t0, t1) {
    if (!p.moments) return;
    const within = marks.filter(([t]) => t >= t0 && t <= t1), widthOf = text => text.length * 6.6;
    const places = within.map(
      ([t, text]) => [p.x + (t - t0) / (t1 - t0) * p.width, Math.min(widthOf(text) + 10, 240)]);
    p.moments.replaceChildren(...markLabels(places, Number(p.moments.dataset.right), 48).map(({ nth, start, room }) => {
      const [t, text] = within[nth], group = element('g', {});
      group.append(element('title', {}, `${seconds(t)}: ${text}`));
      const label = fitted(text, room - 8, widthOf);
      group.append(element('text', { x: start, y: p.y - 4, class: 'moment-label' }, label));
      return group;
    }));
  }
  // Shows a part of the time, or all of it.
  function follow(t0, t1, whole) {
    for (const p of panels) {
      [p.t0, p.t1] = whole ? [p.start, p.end] : [t0, t1];
      if (whole) {
        p.panel.setAttribute('viewBox', p.all);
        p.times.replaceChildren(...p.labels);
        p.moments?.replaceChildren(...p.marked);
        continue;
      }
      const scale = p.width / Math.max(p.end - p.start, 1e-9);
      const [left, wide] = [p.x + (t0 - p.start) * scale, (t1 - t0) * scale];
      p.panel.setAttribute('viewBox', `${left} ${p.y} ${wide} ${p.height}`);
      const bottom = p.y + p.height;
      labelMarks(p, t0, t1);
      p.times.replaceChildren(...timeTicks(t0, t1, p.width, 90).flatMap(([t, label]) => {
        const x = p.x + (t - t0) / (t1 - t0) * p.width;
        return [
          element('line', { x1: x, y1: bottom, x2: x, y2: bottom + 4, class: 'axis' }),
          element('text', { x, y: bottom + 17, 'text-anchor': 'middle', class: 'label' }, label),
        ];
      }));
    }
  }
  // The panel at a pointer, and the time there.
  function at(picture, event, only) {
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
    const inside = p => x >= p.x && x <= p.x + p.width && y >= p.y && y <= p.y + p.height;
    const p = only ?? panels.find(p => p.picture === picture && inside(p));
    if (!p) return null;
    const across = Math.min(Math.max(x, p.x), p.x + p.width);
    return { p, x: across, t: p.t0 + (across - p.x) / p.width * (p.t1 - p.t0) };
  }
  for (const picture of new Set(panels.map(p => p.picture))) {
    let drag = null;
    picture.classList.add('chooses');
    picture.addEventListener('pointerdown', event => {
      const from = event.button === 0 && at(picture, event);
      if (!from) return;
      drag = { ...from, box: element('rect', { y: from.p.y, height: from.p.height, width: 0, class: 'selection' }) };
      picture.append(drag.box);
      picture.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    picture.addEventListener('pointermove', event => {
      if (!drag) return;
      const to = at(picture, event, drag.p);
      drag.box.setAttribute('x', Math.min(drag.x, to.x));
      drag.box.setAttribute('width', Math.abs(to.x - drag.x));
    });
    const drop = event => {
      if (!drag) return;
      const from = drag, to = at(picture, event, drag.p);
      from.box.remove();
      drag = null;
      if (event.type === 'pointerup' && Math.abs(to.x - from.x) > 3) {
        choose(Math.min(from.t, to.t), Math.max(from.t, to.t));
      }
    };
    picture.addEventListener('pointerup', drop);
    picture.addEventListener('pointercancel', drop);
    picture.addEventListener('dblclick', event => { if (at(picture, event)) reset(); });
    picture.addEventListener('wheel', event => {
      const place = event.ctrlKey && at(picture, event);
      if (!place) return;
      event.preventDefault();
      zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), place.t);
    }, { passive: false });
  }
  return { follow };
}
