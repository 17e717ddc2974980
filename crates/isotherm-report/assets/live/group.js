// Times of the day. With more than a day, the date is told, too.
const CLOCK = (() => {
  const DAY = 86_400;
  const two = n => String(n).padStart(2, '0');
  const dayOf = date => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  function text(t, digits = 0) {
    const date = new Date(t * 1e3);
    const part = digits > 0 ? (t % 1).toFixed(Math.min(digits, 3)).slice(1) : '';
    const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${part}`;
    return dayOf(date) === dayOf(new Date()) ? time : `${dayOf(date)} ${time}`;
  }
  // Ticks lie at full minutes or hours of the day here.
  function ticks(t0, t1, width, every) {
    const shift = -new Date(t0 * 1e3).getTimezoneOffset() * 60;
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, DAY, 2 * DAY];
    const rough = (t1 - t0) / Math.max(width / every, 1);
    const step = steps.find(s => s >= rough) ?? Math.ceil(rough / DAY) * DAY;
    const all = [];
    for (let t = Math.ceil((t0 + shift) / step) * step - shift; t <= t1; t += step) {
      const date = new Date(t * 1e3), time = `${two(date.getHours())}:${two(date.getMinutes())}`;
      const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
      all.push([t, step >= DAY ? day : step >= 60 ? time : `${time}:${two(date.getSeconds())}`]);
    }
    return all;
  }
  return { ticks, text };
})();

// The page of a group: its heatmap over the last time, or over an earlier one, and all that is known of it.
const groupPage = (() => {
  const $ = id => document.getElementById(id);
  const MINUTE = 60, HOUR = 3600, DAY = 24 * HOUR;
  const SPANS = [
    [MINUTE, '1 min'], [5 * MINUTE, '5 min'], [10 * MINUTE, '10 min'], [30 * MINUTE, '30 min'], [HOUR, '1 h'],
    [6 * HOUR, '6 h'], [DAY, '1 day'], [7 * DAY, '7 days'], [30 * DAY, '30 days'],
  ];
  // How often the report is asked for again, in seconds: after a failure, because of new memory, and without samples.
  const AGAIN = 5;
  // The part of the daemon's budget that the reports for all live pages together may take.
  const PART = 0.25;
  // The least time of the picture, in seconds.
  const LEAST = 30;
  // The most processes in the table.
  const PROCESSES = 20;

  let name = null, span = 10 * MINUTE, until = null;
  // What cancels the requests of the group and of the time that were shown before.
  let requests = new AbortController(), loading = null, loaded = 0, stale = false, timer = null, begun = 0;
  // The CPU time that the daemon took for the reports of the last time, in seconds.
  let cost = 0;
  const told = seconds => { cost += seconds; };
  const map = heatmapView({
    times: CLOCK,
    painted: (view, target, room) => lanes.paint(view, target, room),
    pointed: () => regions.show(),
  });
  const regions = regionTable({ map, times: CLOCK });
  const lanes = laneList({ map, times: CLOCK });

  const now = () => Date.now() / 1e3 + skew;
  // By how much the clock of the daemon is ahead of that of the browser.
  let skew = 0;
  const isLive = () => until === null;
  const path = () => `v1/groups/${encodeURIComponent(name)}`;

  // ---- the heatmap
  // Says why something is not there.
  function say(text) {
    $('missing').textContent = text && text.charAt(0).toUpperCase() + text.slice(1).replace(/[^.]$/, '$&.');
    $('missing').hidden = !text;
  }
  function shifted(data) {
    const by = data.started;
    data.start += by;
    data.end += by;
    for (const mark of data.marks) mark[0] += by;
    for (const target of data.targets) {
      target.start += by;
      target.end += by;
      for (const moment of target.moments) moment.time += by * 1e3;
    }
    return data;
  }
  // Asks for the report on the time that is shown. That of the present goes on.
  async function load() {
    loading?.abort();
    loading = new AbortController();
    const { signal } = loading, end = until ?? now(), start = end - span;
    [loaded, stale, cost] = [performance.now(), false, 0];
    $('report').href = `${path()}/reports/html?${queryOf(start, end)}`;
    $('report').hidden = daemon.hasToken();
    $('heatmap').classList.add('loading');
    if (isLive()) {
      const stop = daemon.follow(`${path()}/live?last=${span}s`, {
        told, ends: failed,
        event: event => {
          if (event.event === 'heatmap') picture(event, now() - span, now(), signal);
          else if (event.event === 'columns') columns(event);
        },
      });
      signal.addEventListener('abort', stop);
      return;
    }
    try {
      const data = await daemon.ask(`${path()}/heatmap?${queryOf(start, end)}`, signal, told);
      if (!signal.aborted) picture(data, start, end, signal);
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  }
  const queryOf = (start, end) => `from=${Math.round(start * 1e3)}&to=${Math.round(end * 1e3)}`;
  function failed(error) {
    $('heatmap').classList.remove('loading');
    // What was shown stays while the daemon is away. In another time there is nothing of it.
    if (error.status) {
      $('heatmap').hidden = $('regions').hidden = true;
      for (const id of ['wss', 'idle']) $(id).replaceChildren();
    }
    say(error.status ? error.message : 'the daemon does not answer; what is shown is from before');
  }
  // Shows a report.
  function picture(next, start, end, signal) {
    const data = shifted(next);
    $('heatmap').classList.remove('loading');
    if (!data.targets.length) {
      failed(new daemon.Refused(404, 'nothing was recorded in this time'));
      return;
    }
    // Of the present, no more is shown than there is.
    begun = isLive() ? Math.max(start, Math.min(data.start, end - LEAST)) : start;
    [data.start, data.end] = [begun, end];
    for (const target of data.targets) if (target.later) liveColumns.begin(target);
    $('legend').innerHTML = data.legend;
    $('touched-legend').innerHTML = data.touched_legend ?? '';
    $('note').textContent = data.note;
    $('heatmap-warnings').replaceChildren(...data.warnings.map(warning => {
      const item = document.createElement('li');
      item.textContent = warning;
      return item;
    }));
    $('measures').hidden = !data.touched_legend;
    $('heatmap').hidden = $('regions').hidden = false;
    map.replace(data);
    for (const target of data.targets) map.ready(target);
    lanes.begin();
    regions.begin();
    regions.show();
    say('');
    draw(queryOf(start, end), signal);
  }
  // Columns that have changed.
  function columns(changed) {
    const { data } = map, time = data.started + changed.time;
    skew = time - Date.now() / 1e3;
    stale ||= changed.stale;
    for (const part of changed.targets) {
      const target = data.targets[part.target], { first, count } = part;
      liveColumns.take(target, part, time);
      map.changed(target.later, target.rows, first, first + count);
    }
    if (map.pinned === null && map.pointed === null) regions.show();
  }
  // Has the daemon draw the pictures of the same time.
  async function draw(query, signal) {
    for (const [id, kind] of [['wss', 'wss'], ['idle', 'idle-time']]) {
      try {
        const text = await daemon.text(`${path()}/reports/${kind}?format=svg&${query}`, signal, told);
        // The page has the style of pictures, and its policy allows no other.
        const plain = text.replace(/<style>[^<]*<\/style>/g, '');
        const picture = new DOMParser().parseFromString(plain, 'image/svg+xml').documentElement;
        picture.classList.add('picture');
        for (const size of ['width', 'height']) picture.removeAttribute(size);
        if (!signal.aborted) $(id).replaceChildren(document.importNode(picture, true));
      } catch (error) {
        if (signal.aborted || !error.status) return;
        const why = document.createElement('p');
        why.className = 'quiet';
        why.textContent = error.message;
        $(id).replaceChildren(why);
      }
    }
  }
  // Each second the picture moves on. What is stale is asked for again, but not too often.
  function tick() {
    if (!isLive() || document.hidden) return;
    const isShown = map.data && !$('heatmap').hidden;
    if (isShown) map.advance(Math.max(now() - span, begun), now());
    // With more time, a report costs more, and tells less that is new.
    const least = Math.max(AGAIN, span / 60, affordable());
    const pause = stale ? least : Math.max(least, (now() - begun) / 5);
    // What is not there yet is asked for by the stream itself.
    if (isShown && performance.now() - loaded > pause * 1e3 && !$('heatmap').classList.contains('loading')) load();
    period();
  }
  // The seconds from a report to the next with which all pages keep to their part of the budget.
  function affordable() {
    const { cpu_budget, followers } = overview.newest ?? {};
    return cpu_budget ? cost * Math.max(followers, 1) / (cpu_budget * PART) : 0;
  }
  function period() {
    const end = until ?? now();
    $('period').textContent = isLive() ? '' : `${CLOCK.text(end - span)} to ${CLOCK.text(end)}`;
    $('now').setAttribute('aria-pressed', String(isLive()));
    $('later').disabled = isLive();
  }
  function go(to) {
    until = to !== null && to < now() - 1 ? to : null;
    period();
    if (name) load();
  }
  function setSpan(seconds) {
    span = seconds;
    $('span').value = String(seconds);
    localStorage.setItem('isotherm-span', String(seconds));
    go(until);
  }

  // ---- the figures
  function show() {
    const group = overview.of(name);
    $('h-group').textContent = name;
    if (!group) {
      if (overview.newest) $('facts').textContent = 'The daemon has no group of this name now.';
      return;
    }
    const every = (what, ns) => ns ? `${what} each ${seconds(ns / 1e9)}` : '';
    const { pace } = group;
    const processes = `${group.processes} process${group.processes === 1 ? '' : 'es'}`;
    $('facts').textContent = [
      group.state + (group.why ? `: ${group.why}` : ''), processes, group.probe && `probe ${group.probe}`,
      pace && every('surveyed', pace.survey_interval_ns), pace && every('sampled', pace.sampling_interval_ns),
      pace && `${percent(pace.cpu)} of one CPU${pace.limited ? ', limited by the budget' : ''}`,
    ].filter(Boolean).join(' · ');
    const unknown = group.memory?.unknown ? [['not known yet', { text: size(group.memory.unknown) }]] : [];
    const dark = group.memory?.unobservable ? [['unobservable', { text: size(group.memory.unobservable) }]] : [];
    const hot = `accessed at ${COLOURS.hot_hz} Hz or more`;
    tiles($('tiles'), [
      ['in memory', figures.resident(group)], ['working set, 1 min', figures.touched(group)],
      ['hot', figures.hot(group), hot], ['idle', figures.idle(group), 'not accessed since the survey before'],
      ['reclaimable', figures.reclaimable(group), 'idle for so long that it can likely be reclaimed'],
      ['in swap', figures.swapped(group)], ...dark, ...unknown,
    ]);
    showSchemes(group.schemes);
    $('nodes-section').hidden = group.nodes.length < 2;
    rows($('nodes'), group.nodes, node => String(node.node), () => {}, (row, node) => {
      const of = { ...node, watched_ns: group.watched_ns };
      row.cells[0].textContent = `node ${node.node}`;
      ['resident', 'touched', 'idle', 'reclaimable'].forEach((key, nth) => put(row.cells[nth + 1], figures[key](of)));
    });
  }
  function showSchemes(schemes) {
    $('no-schemes').hidden = schemes.length > 0;
    $('schemes').parentElement.hidden = !schemes.length;
    rows($('schemes'), schemes, scheme => scheme.name, () => {}, (row, scheme) => {
      const state = { true: 'awake', false: 'asleep' }[scheme.awake] ?? 'not applied yet';
      const refused = Object.entries(scheme.refused_bytes).map(([why, bytes]) => `${size(bytes)} ${why}`).join(', ');
      const share = scheme.watched_bytes ? percent(scheme.returned_bytes / scheme.watched_bytes) : '–';
      const cells = [
        scheme.name, scheme.action, state, size(scheme.tried_bytes), size(scheme.applied_bytes), refused || '–',
        size(scheme.rejected_bytes), share, scheme.quota_bytes === null ? '–' : size(scheme.quota_bytes),
        scheme.goal_score === null ? '–' : percent(scheme.goal_score),
      ];
      cells.forEach((text, nth) => { row.cells[nth].textContent = text; });
      row.title = scheme.about;
    });
  }
  // The processes and the notices, which are asked for from time to time.
  async function details() {
    const { signal } = requests;
    try {
      const [targets, status] = [await daemon.ask(`${path()}/targets`, signal), await daemon.ask(path(), signal)];
      const resident = target => target.memory?.resident ?? -1;
      targets.sort((a, b) => resident(b) - resident(a));
      const watched_ns = overview.of(name)?.watched_ns ?? 0;
      rows($('processes'), targets.slice(0, PROCESSES), target => String(target.pid), () => {}, (row, target) => {
        const [command, pid, ...others] = row.cells, of = { ...target, watched_ns };
        command.textContent = target.command;
        command.title = target.command;
        pid.textContent = target.pid;
        ['resident', 'touched', 'idle', 'swapped'].forEach((key, nth) => put(others[nth], figures[key](of)));
      });
      const more = targets.length - PROCESSES;
      $('more-processes').textContent = more > 0 ? `and ${more} smaller processes` : '';
      const notices = status.notices.slice(-20).reverse();
      $('notices').replaceChildren(...notices.map(notice => {
        const item = document.createElement('li'), time = document.createElement('time');
        time.textContent = CLOCK.text(notice.unix_ns / 1e9);
        item.append(time, ' ', notice.text);
        item.classList.toggle('warned', notice.warning);
        return item;
      }));
      $('h-notices').parentElement.hidden = !notices.length;
    } catch (error) {
      // The state of the connection is shown at the top, and that of the group with its figures.
      if (!signal.aborted) setTimeout(() => { if (!signal.aborted) details(); }, AGAIN * 1e3);
      return;
    }
    setTimeout(() => { if (!signal.aborted) details(); }, AGAIN * 1e3);
  }

  function open(group) {
    close();
    name = group;
    until = null;
    requests = new AbortController();
    say('');
    for (const id of ['facts', 'note']) $(id).textContent = '';
    for (const id of ['tiles', 'wss', 'idle', 'notices', 'heatmap-warnings']) $(id).replaceChildren();
    $('processes').tBodies[0].replaceChildren();
    $('heatmap').hidden = $('regions').hidden = true;
    show();
    period();
    load();
    details();
    timer = setInterval(tick, 1000);
  }
  function close() {
    loading?.abort();
    requests.abort();
    clearInterval(timer);
    name = null;
  }
  function choose(by) {
    const nth = SPANS.findIndex(([seconds]) => seconds === span) + by;
    if (SPANS[nth]) setSpan(SPANS[nth][0]);
  }

  for (const [seconds, text] of SPANS) $('span').add(new Option(text, seconds));
  const kept = Number(localStorage.getItem('isotherm-span'));
  if (SPANS.some(([seconds]) => seconds === kept)) span = kept;
  $('span').value = String(span);
  $('span').addEventListener('change', () => setSpan(Number($('span').value)));
  const earlier = () => go((until ?? now()) - span / 2), later = () => go(isLive() ? null : until + span / 2);
  $('earlier').addEventListener('click', earlier);
  $('later').addEventListener('click', later);
  $('now').addEventListener('click', () => go(null));
  return {
    open, close, show, redraw: map.draw, earlier, later, present: () => go(null),
    shorter: () => choose(-1), longer: () => choose(1),
    get name() { return name; },
  };
})();
