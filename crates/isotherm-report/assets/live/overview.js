// Figures of groups as people read them. What is not known is no figure: it is a question mark, and says why.
const UNKNOWN_FIGURE = { text: '?', title: 'not known yet' };
// With a larger share of memory of which nothing is known, a figure would be a guess.
const MUCH_UNKNOWN = 0.25;

const figures = {
  resident: of => of.memory ? { text: size(of.memory.resident) } : UNKNOWN_FIGURE,
  // What was accessed within a minute.
  touched(of) {
    const { memory } = of;
    const observable = memory ? memory.resident - memory.unobservable : 0;
    if (observable <= 0) return memory ? { text: '?', title: 'nothing of it can be observed' } : UNKNOWN_FIGURE;
    const title = memory.unknown ? `${size(memory.unknown)} are not known yet` : '';
    if (memory.unknown > observable * MUCH_UNKNOWN) return { text: '?', title };
    const least = of.watched_ns < 60e9, text = size(memory.touched_within['1m'] ?? 0);
    if (least) return { text: `≥ ${text}`, title: `watched for ${seconds(of.watched_ns / 1e9)} only` };
    return { text: memory.unknown ? `≈ ${text}` : text, title };
  },
  idle(of) {
    const { memory } = of;
    if (!memory || memory.unknown + memory.unobservable >= memory.resident && memory.resident) return UNKNOWN_FIGURE;
    return { text: (memory.unknown ? '≥ ' : '') + size(memory.idle) };
  },
  reclaimable(of) {
    if (!of.reclaimable) return { text: '?', title: 'not watched for long enough' };
    const least = of.memory?.unknown ? '≥ ' : '', idle = seconds(of.reclaimable.idle_for_ns / 1e9);
    return { text: least + size(of.reclaimable.bytes), title: `idle for ${idle} or longer`, more: `idle ${idle}` };
  },
  hot: of => of.temperature ? { text: size(of.temperature.hot) }
    : { text: '?', title: of.memory ? 'without samples, nothing tells how often memory is accessed' : 'not known yet' },
  swapped: of => of.memory?.swapped === undefined || of.memory.swapped === null ? { text: '?', title: 'not known' }
    : { text: size(of.memory.swapped) },
  cost: of => of.pace ? { text: percent(of.pace.cpu), more: of.pace.limited ? 'limited' : '' } : UNKNOWN_FIGURE,
};

function put(cell, { text, title, more }) {
  cell.textContent = text;
  cell.title = title ?? '';
  if (more) {
    const small = cell.appendChild(document.createElement('small'));
    small.textContent = ` ${more}`;
  }
}
const STATES = { watching: '', paused: 'paused', ended: 'ended', failed: 'not watched' };

// Fills a list of terms with a figure each.
function tiles(list, entries) {
  if (list.children.length !== entries.length) {
    list.replaceChildren(...entries.map(() => {
      const tile = document.createElement('div');
      tile.append(document.createElement('dt'), document.createElement('dd'));
      return tile;
    }));
  }
  entries.forEach(([name, figure, about], nth) => {
    const [term, value] = list.children[nth].children;
    term.textContent = name;
    term.title = about ?? '';
    put(value, figure);
  });
}

// Fills the body of a table: a row for each entry, made once and filled again. `cells` fills the cells of a row.
function rows(table, entries, key, make, fill) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells].map(head => head.textContent);
  const known = new Map([...body.rows].map(row => [row.dataset.key, row]));
  const shown = entries.map(entry => {
    let row = known.get(key(entry));
    if (!row) {
      row = document.createElement('tr');
      row.dataset.key = key(entry);
      heads.forEach((head, nth) => {
        const cell = row.appendChild(document.createElement(nth ? 'td' : 'th'));
        cell.dataset.head = head;
      });
      make(row, entry);
    }
    fill(row, entry);
    return row;
  });
  if (shown.length !== body.rows.length || shown.some((row, nth) => body.rows[nth] !== row)) {
    const focused = document.activeElement;
    body.replaceChildren(...shown);
    if (body.contains(focused)) focused.focus({ preventScroll: true });
  }
}

// The overview of all groups.
const overview = (() => {
  const $ = id => document.getElementById(id);
  const trends = new Map();
  let newest = null;

  function take(next) {
    newest = next;
    const time = next.unix_ns / 1e9;
    for (const group of next.groups) {
      if (!trends.has(group.name)) trends.set(group.name, new Trend());
      const trend = trends.get(group.name), last = trend.points[trend.points.length - 1]?.time ?? 0;
      const { memory } = group;
      // The first points come sooner, so that there is something to see.
      const pause = trend.points.length < 6 ? 2 : 10;
      if (!memory || group.state !== 'watching' || time - last < pause) continue;
      const touched = figures.touched(group).text === '?' ? null : memory.touched_within['1m'] ?? null;
      trend.take([{ time, resident: memory.resident, touched }]);
    }
    for (const name of trends.keys()) if (!next.groups.some(group => group.name === name)) trends.delete(name);
    show();
  }
  // Takes in what the daemon remembers.
  function remember(known) {
    for (const [name, points] of Object.entries(known)) {
      const trend = new Trend(), later = trends.get(name)?.points ?? [];
      const { resident, touched } = points;
      trend.take([...later, ...points.time.map((time, nth) => ({
        time, resident: resident[nth], touched: touched[nth],
      }))].sort((a, b) => a.time - b.time));
      trends.set(name, trend);
    }
    show();
  }
  function show() {
    if (!newest) return;
    const { cpu, cpu_budget, serving_cpu, resident_bytes, history_bytes, problems, groups } = newest;
    $('where').textContent = newest.host ? `on ${newest.host}` : '';
    $('problems').replaceChildren(...problems.map(problem => {
      const item = document.createElement('li');
      item.textContent = problem;
      return item;
    }));
    const watched = groups.filter(group => group.state === 'watching').length;
    tiles($('daemon'), [
      ['budget', cpu === null ? UNKNOWN_FIGURE : { text: `${percent(cpu)} of ${percent(cpu_budget)}` },
        'CPU time of the daemon over the last seconds, and the share of one CPU that it may take; requests and live '
        + `pages took ${percent(serving_cpu)} over the last minute`],
      ['memory of isotherm', resident_bytes === null ? UNKNOWN_FIGURE : { text: size(resident_bytes) }],
      ['history', history_bytes === null ? { text: 'none', title: 'history.directory is null in the configuration' }
        : history_bytes ? { text: size(history_bytes) } : { text: '?', title: 'counted once a minute' }],
      ['groups', { text: watched === groups.length ? `${watched}` : `${watched} of ${groups.length} watched` }],
    ]);
    const sorted = [...groups].sort((a, b) => (b.memory?.resident ?? -1) - (a.memory?.resident ?? -1));
    const largest = sorted[0]?.memory?.resident ?? 0;
    $('groups').parentElement.hidden = !groups.length;
    $('no-groups').hidden = groups.length > 0;
    rows($('groups'), sorted, group => group.name, (row, group) => {
      const link = row.cells[0].appendChild(document.createElement('a'));
      link.href = `#/group/${encodeURIComponent(group.name)}`;
      row.cells[0].appendChild(document.createElement('small'));
      row.cells[7].append(svg('svg', {
        class: 'stack', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img',
      }));
      row.cells[8].append(svg('svg', {
        class: 'trend', viewBox: '0 0 100 24', preserveAspectRatio: 'none', role: 'img',
      }));
      row.addEventListener('click', event => { if (!event.target.closest('a')) location.hash = link.hash; });
    }, (row, group) => {
      const [name, processes, resident, touched, hot, idle, reclaimable, bar, trend, cost] = row.cells;
      name.firstChild.textContent = group.name;
      const acts = group.schemes.length ? `${group.schemes.length} scheme${group.schemes.length > 1 ? 's' : ''}` : '';
      name.lastChild.textContent = ` ${[STATES[group.state], acts].filter(Boolean).join(', ')}`;
      name.title = group.why ?? '';
      row.classList.toggle('off', group.state !== 'watching');
      processes.textContent = group.processes;
      put(resident, figures.resident(group));
      put(touched, figures.touched(group));
      put(hot, figures.hot(group));
      put(idle, figures.idle(group));
      put(reclaimable, figures.reclaimable(group));
      put(cost, figures.cost(group));
      drawBar(bar.firstChild, group.temperature, largest);
      trends.get(group.name)?.draw(trend.firstChild);
    });
  }
  $('bar-legend').append(...barLegend());
  return {
    take, remember,
    get newest() { return newest; },
    of: name => newest?.groups.find(group => group.name === name),
    // The names of the groups, in the order of the table.
    names: () => [...$('groups').tBodies[0].rows].map(row => row.dataset.key),
  };
})();
