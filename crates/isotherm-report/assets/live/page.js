// The live page: the connection, what is shown by the address, the theme and the keys.
(() => {
  const $ = id => document.getElementById(id);

  // ---- the connection
  let broken = null;
  function link(state, text) {
    $('link').dataset.state = state;
    $('link-text').textContent = text;
  }
  async function remember() {
    try {
      overview.remember(await daemon.ask('v1/trends'));
    } catch {
      // The next connection asks again.
    }
  }
  function begin() {
    return daemon.follow('v1/overview/events', {
      event: event => {
        if (event.event !== 'overview') return;
        link('live', 'live');
        overview.take(event);
        groupPage.show();
      },
      begins: () => {
        broken = null;
        $('ask').hidden = true;
        link('live', 'connected');
        remember();
      },
      ends: error => {
        if (error.status === 401) {
          link('refused', 'a token is needed');
          if ($('ask').hidden) {
            $('ask').hidden = false;
            $('token').focus();
          }
          return;
        }
        broken ??= Date.now();
        const why = error.status ? error.message : 'the daemon does not answer';
        link('broken', `${why}; trying again since ${CLOCK.text(broken / 1e3)}`);
      },
    });
  }
  let stop = () => {};
  function connect(token) {
    if (token) daemon.setToken(token);
    $('ask').hidden = true;
    stop();
    stop = begin();
  }
  $('ask').addEventListener('submit', event => {
    event.preventDefault();
    connect($('token').value.trim());
    $('token').value = '';
    groupPage.close();
    route();
  });

  // ---- what is shown
  function route() {
    const token = location.hash.match(/^#token=(.+)$/);
    if (token) {
      // Not in the history of the browser, nor on the screen.
      history.replaceState(null, '', '#/');
      connect(decodeURIComponent(token[1]));
    }
    const group = location.hash.match(/^#\/group\/(.+)$/);
    $('overview').hidden = Boolean(group);
    $('group').hidden = !group;
    if (!group) {
      groupPage.close();
      document.title = 'isotherm: live';
      return;
    }
    const name = decodeURIComponent(group[1]);
    document.title = `isotherm: ${name}`;
    if (groupPage.name !== name) groupPage.open(name);
    window.scrollTo(0, 0);
  }
  window.addEventListener('hashchange', route);

  // ---- the theme
  function setTheme(name) {
    theme.set(name);
    $('theme').value = name;
    localStorage.setItem('isotherm-theme', name);
    groupPage.redraw();
  }
  $('theme').addEventListener('change', () => setTheme($('theme').value));
  const kept = localStorage.getItem('isotherm-theme');
  setTheme(['light', 'dark'].includes(kept) ? kept : 'auto');

  // ---- the keys
  function toggleKeys() {
    $('keys').hidden = !$('keys').hidden;
    $('keys-button').setAttribute('aria-expanded', String(!$('keys').hidden));
  }
  $('keys-button').addEventListener('click', toggleKeys);
  function move(by) {
    const links = [...document.querySelectorAll('#groups a')], at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
    next?.focus();
  }
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.('input, select')) return;
    const anywhere = { '?': toggleKeys, d: () => setTheme(theme.isDark() ? 'light' : 'dark') };
    const inOverview = { j: () => move(1), k: () => move(-1) };
    const inGroup = {
      l: groupPage.present, ',': groupPage.earlier, '.': groupPage.later, '[': groupPage.shorter, ']': groupPage.longer,
      Escape: () => { if (event.target.id !== 'map') location.hash = '#/'; },
    };
    const act = anywhere[event.key] ?? (groupPage.name === null ? inOverview : inGroup)[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  });
  connect(null);
  route();
})();
