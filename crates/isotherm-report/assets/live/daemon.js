// Asks the daemon, and follows its streams of events.
const daemon = (() => {
  // How long nothing may come on a stream, which says every 15 s that it is there.
  const SILENCE = 40_000;
  // The longest time between two attempts to connect.
  const PATIENCE = 5_000;
  // The most text of an event.
  const MOST_EVENT = 64 << 20;
  let token = sessionStorage.getItem('isotherm-token');
  const sleep = ms => new Promise(done => setTimeout(done, ms));

  class Refused extends Error {
    constructor(status, detail) {
      super(detail);
      this.status = status;
    }
  }
  // The CPU time that the daemon took for an answer, in seconds.
  const costOf = answer => Number(answer.headers.get('Server-Timing')?.match(/cpu;dur=([0-9.]+)/)?.[1] ?? 0) / 1e3;
  // `told` is told the CPU time.
  async function request(path, signal, told = () => {}) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch(path, { headers, signal, cache: 'no-store', credentials: 'omit', redirect: 'error' });
    told(costOf(answer));
    if (answer.ok) return answer;
    const problem = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, problem.detail ?? `the daemon refused with status ${answer.status}`);
  }
  // Hands the events of a stream to `event`, until the stream ends.
  async function read(stream, event) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let pending = '', timer;
    try {
      for (;;) {
        const silence = new Promise((_, fail) => {
          timer = setTimeout(() => fail(new Error('the daemon has said nothing for long')), SILENCE);
        });
        const { value, done } = await Promise.race([reader.read(), silence]);
        clearTimeout(timer);
        if (done) return;
        pending += value;
        if (pending.length > MOST_EVENT) throw new Error('an event of the daemon is too large');
        for (let end; (end = pending.indexOf('\n\n')) >= 0; pending = pending.slice(end + 2)) {
          const lines = pending.slice(0, end).split('\n').filter(line => line.startsWith('data: '));
          if (lines.length) event(JSON.parse(lines.map(line => line.slice(6)).join('\n')));
        }
      }
    } finally {
      clearTimeout(timer);
      reader.cancel().catch(() => {});
    }
  }
  // Follows a stream, and connects again whenever it ends, until the returned function is called. `begins` is called at
  // each begin, and `ends` at each end with the reason. `told` is told the CPU time until each begin.
  function follow(path, { event, begins = () => {}, ends = () => {}, told }) {
    const stop = new AbortController();
    (async () => {
      for (let wait = 250; !stop.signal.aborted; wait = Math.min(wait * 2, PATIENCE)) {
        try {
          const answer = await request(path, stop.signal, told);
          wait = 250;
          begins();
          await read(answer.body, event);
          ends(new Error('the daemon has ended the stream'));
        } catch (error) {
          if (stop.signal.aborted) return;
          ends(error);
        }
        await sleep(wait);
      }
    })();
    return () => stop.abort();
  }
  return {
    follow, Refused,
    // The answer to a request, which is JSON.
    ask: async (path, signal, told) => (await request(path, signal, told)).json(),
    text: async (path, signal, told) => (await request(path, signal, told)).text(),
    hasToken: () => Boolean(token),
    setToken(text) {
      token = text;
      sessionStorage.setItem('isotherm-token', text);
    },
  };
})();
