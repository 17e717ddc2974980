// The list of targets: a lane for each on the time axis of the heatmap. It can be searched by name and process ID.
function laneList({ map, times }) {
  const $ = id => document.getElementById(id);
  const list = $('lanes');
  let lanes = [];
  function lane(target, i) {
    const row = document.createElement('li');
    const name = row.appendChild(document.createElement('button'));
    name.type = 'button';
    name.className = 'name';
    name.title = target.title;
    // A long name is cut, and the process ID is not.
    name.appendChild(document.createElement('span')).textContent = target.program;
    if (target.pid !== null) {
      name.append(' ');
      name.appendChild(document.createElement('span')).textContent = target.pid;
    }
    name.addEventListener('click', () => map.load(i));
    const canvas = row.appendChild(document.createElement('canvas'));
    canvas.addEventListener('click', () => map.load(i));
    const end = row.appendChild(document.createElement('span'));
    end.append(size(target.bytes), ' ');
    const own = end.appendChild(document.createElement('button'));
    own.type = 'button';
    own.className = 'life';
    own.textContent = 'life';
    own.title = `Zoom to its life: ${times.text(target.start)} to ${times.text(target.end)}`;
    own.addEventListener('click', () => {
      map.load(i);
      map.show(target.start, target.end, 0, target.rows);
    });
    return { row, name, canvas, target, text: target.title.toLowerCase(), seen: false };
  }
  let shown = null;
  // Paints the lanes that can be seen, and marks that of the target in the heatmap.
  function paint(view, current, room) {
    shown = [view, current, room];
    for (const lane of lanes) {
      if (lane.target === current) lane.row.setAttribute('aria-current', 'true');
      else lane.row.removeAttribute('aria-current');
      if (!lane.seen || lane.row.hidden) continue;
      const ratio = window.devicePixelRatio || 1, { canvas, target } = lane;
      canvas.style.width = room + 'px';
      const [width, height] = [canvas.clientWidth, canvas.clientHeight].map(v => Math.max(Math.round(v * ratio), 1));
      if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
      const c = canvas.getContext('2d'), x = t => (t - view.t0) / (view.t1 - view.t0) * width;
      c.clearRect(0, 0, width, height);
      const [from, to] = [x(target.start), x(target.later?.filled ?? target.end)];
      c.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--line');
      c.fillRect(from, 0, Math.max(to - from, 1), height);
      map.drawCells(c, target, x, 0, height);
    }
  }
  // The lanes outside of the visible part of the list are painted when they come into it.
  const watch = new IntersectionObserver(changes => {
    for (const { target, isIntersecting } of changes) {
      const lane = lanes.find(lane => lane.row === target);
      if (lane) lane.seen = isIntersecting;
    }
    if (shown) paint(...shown);
  }, { root: list, rootMargin: '100px' });

  // Other targets are shown from now on.
  function begin() {
    watch.disconnect();
    shown = null;
    lanes = map.data.targets.map(lane);
    list.replaceChildren(...lanes.map(lane => lane.row));
    for (const lane of lanes) watch.observe(lane.row);
    $('targets').hidden = lanes.length < 2;
    search();
    map.draw();
  }

  function search() {
    const words = $('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const lane of lanes) lane.row.hidden = !words.every(word => lane.text.includes(word));
    const found = lanes.filter(lane => !lane.row.hidden).length;
    $('found').textContent = words.length ? `${found} of ${lanes.length} targets` : `${lanes.length} targets`;
    if (shown) paint(...shown);
  }
  $('search').addEventListener('input', search);
  $('search').addEventListener('keydown', event => {
    const first = event.key === 'Enter' && lanes.findIndex(lane => !lane.row.hidden);
    if (first !== false && first >= 0) map.load(first);
  });
  return { paint, begin };
}
