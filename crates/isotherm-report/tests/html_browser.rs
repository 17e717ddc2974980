//! The page in a browser: headless Chromium, controlled by its DevTools protocol over a pipe.
//!
//! Needs `chromium`, or the program that `ISOTHERM_CHROMIUM` names; without it, the tests are skipped. With
//! `ISOTHERM_SCREENSHOTS` set to a directory, the tests write screenshots to it.
#![allow(missing_docs, clippy::unwrap_used)]

mod made;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use isotherm_report::{Format, Kind, Options, Selection, Source};
use isotherm_testing::installed_or_skip;
use serde_json::{Value, json};

/// A page in a browser. The browser ends when this is dropped.
struct Page {
    browser: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    /// Problems of the page: exceptions, violations of its policy, console errors, requests.
    complaints: Vec<String>,
    last_id: u64,
    loaded: bool,
    profile: tempfile::TempDir,
}

impl Page {
    /// Opens a report. An error is the reason to skip the test.
    fn open(source: &dyn Source, dark: bool, script: bool) -> Result<Self, String> {
        let chromium = std::env::var("ISOTHERM_CHROMIUM").unwrap_or_else(|_| "chromium".into());
        let found = Command::new(&chromium).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(format!("{chromium} cannot be run; install chromium"));
        }
        let profile = tempfile::tempdir().unwrap();
        let file = profile.path().join("report.html");
        let mut out = std::fs::File::create(&file).unwrap();
        isotherm_report::write(Kind::Html, Format::Html, source, &Selection::default(), &Options::default(), &mut out)
            .unwrap();
        // Chromium uses descriptors 3 and 4, to which the shell moves its input and output. If it hangs it is ended,
        // and
        // the next read fails.
        let mut browser = Command::new("sh")
            .args(["-c", "exec timeout -k 5 120 \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", &chromium])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--window-size=1300,1000", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (browser.stdin.take().unwrap(), BufReader::new(browser.stdout.take().unwrap()));
        let mut page =
            Self { browser, to, from, session: None, complaints: vec![], last_id: 0, loaded: false, profile };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = page.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        page.session = Some(attached["sessionId"].as_str().unwrap().into());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        let scheme = if dark { "dark" } else { "light" };
        page.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        page.call("Emulation.setScriptExecutionDisabled", json!({ "value": !script }));
        page.loaded = false;
        page.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while !page.loaded {
            page.next();
        }
        Ok(page)
    }

    /// Calls a method and waits for its answer.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let answer = self.next();
            if answer["id"] == json!(id) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The next message. If it reports a problem, the problem is kept.
    fn next(&mut self) -> Value {
        let mut bytes = vec![];
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let params = &message["params"];
        match message["method"].as_str().unwrap_or("") {
            "Page.loadEventFired" => self.loaded = true,
            "Runtime.exceptionThrown" | "Log.entryAdded" => self.complaints.push(params.to_string()),
            "Runtime.consoleAPICalled" if params["type"] == "error" => self.complaints.push(params.to_string()),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or("");
                if !url.starts_with("file:") && !url.starts_with("data:") {
                    self.complaints.push(format!("request to {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// The value of an expression. If that is a promise, the value to which it resolves.
    fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until the page has painted.
    fn settle(&mut self) {
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
    }

    fn text(&mut self, id: &str) -> String {
        self.eval(&format!("document.getElementById('{id}').textContent")).as_str().unwrap().into()
    }

    /// The visible part of the heatmap: start and end in time, first and last row.
    fn view(&mut self) -> Vec<f64> {
        self.settle();
        let view = self.eval("document.getElementById('map').dataset.view");
        view.as_str().unwrap().split(' ').map(|v| v.parse().unwrap()).collect()
    }

    /// The point of the window at these shares of the width and height of the heatmap.
    fn on_map(&mut self, across: f64, down: f64) -> (f64, f64) {
        let script = "(() => {
            const b = document.getElementById('map').getBoundingClientRect();
            return [b.x, b.y, b.width, b.height];
        })()";
        let found = self.eval(script);
        let v = |i: usize| found[i].as_f64().unwrap();
        (v(0) + 118.0 + (v(2) - 268.0) * across, v(1) + 6.0 + (v(3) - 32.0) * down)
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), more: Value) {
        let mut params = json!({ "type": kind, "x": x, "y": y, "button": "none" });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.call("Input.dispatchMouseEvent", params);
        self.settle();
    }

    fn screenshot(&mut self, name: &str) {
        if let Ok(dir) = std::env::var("ISOTHERM_SCREENSHOTS") {
            let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
            let png = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
            std::fs::write(Path::new(&dir).join(format!("{name}.png")), png).unwrap();
        }
    }

    fn assert_content(&self) {
        assert!(self.complaints.is_empty(), "{:#?}", self.complaints);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // `Browser.close` ends all processes of the browser. The kill is for a browser that does not react.
        let end = json!({ "id": 0, "method": "Browser.close" }).to_string();
        let asked = self.to.write_all(end.as_bytes()).and_then(|()| self.to.write_all(&[0])).is_ok();
        for _ in 0..if asked { 100 } else { 0 } {
            if self.browser.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        _ = self.browser.kill();
        _ = self.browser.wait();
        _ = self.profile.path();
    }
}

/// The number of colours in a sample of the pixels of the canvas.
const COLOURS: &str = "(() => {
    const map = document.getElementById('map'), seen = new Set();
    const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
    for (let i = 0; i < data.length; i += 4 * 97) seen.add(data.slice(i, i + 4).join());
    return seen.size;
})()";

#[test]
fn the_heatmap_can_be_zoomed_and_read_with_the_pointer() {
    let mut page = installed_or_skip!(Page::open(&made::phases(300), false, true));
    page.settle();
    assert!(page.eval(COLOURS).as_u64().unwrap() > 10, "the heatmap is not drawn");
    let all = page.view();
    assert_eq!((all[0], all[1]), (0.0, 30.0));

    // In the middle of the first third, the lowest quarter of the anonymous memory is hot.
    let at = page.on_map(0.1, 0.75);
    page.mouse("mouseMoved", at, json!({}));
    let readout = page.text("readout");
    assert!(page.text("legend").contains("1 (≥ 200 Hz)"), "{}", page.text("legend"));
    for part in ["3.0", " s · 0x7f30", "anonymous", "access rate 55 % (110 Hz), for about"] {
        assert!(readout.contains(part), "{part} is not in {readout:?}");
    }
    assert!(page.text("moment").starts_with("at 3"), "{}", page.text("moment"));
    assert_eq!(page.eval("document.querySelectorAll('#table tbody tr.pointed').length"), json!(1));
    page.screenshot("light");
    let stack = page.on_map(0.1, 0.01);
    page.mouse("mouseMoved", stack, json!({}));
    assert!(page.text("readout").contains("access rate 100 % (at least 200 Hz)"), "{}", page.text("readout"));
    let absent = "document.querySelector('#table th[data-key=absent]').checkVisibility()";
    assert_eq!(page.eval(absent), json!(false), "no survey tells");
    let other = page.on_map(0.1, 0.95);
    page.mouse("mouseMoved", other, json!({}));
    assert!(page.text("readout").contains("[heap]"), "{}", page.text("readout"));

    page.mouse("mouseWheel", at, json!({ "deltaX": 0, "deltaY": -240 }));
    let zoomed = page.view();
    assert!(zoomed[1] - zoomed[0] < 20.0 && zoomed[3] - zoomed[2] < all[3], "{zoomed:?}");
    assert!(page.text("view").contains("zoomed in"));
    page.mouse("mouseWheel", at, json!({ "deltaX": 0, "deltaY": -240, "modifiers": 8 }));
    let narrow = page.view();
    assert!(narrow[1] - narrow[0] < zoomed[1] - zoomed[0] && narrow[2..] == zoomed[2..], "Shift zooms time only");
    page.screenshot("zoomed");

    page.eval("document.getElementById('reset').click()");
    assert_eq!(page.view(), all);
    let (from, to) = (page.on_map(0.25, 0.2), page.on_map(0.5, 0.6));
    let left = json!({ "button": "left", "buttons": 1, "clickCount": 1 });
    page.mouse("mousePressed", from, left.clone());
    page.mouse("mouseMoved", to, left.clone());
    page.mouse("mouseReleased", to, left.clone());
    let dragged = page.view();
    assert!((dragged[0] - 7.5).abs() < 0.2 && (dragged[1] - 15.0).abs() < 0.2, "{dragged:?}");
    let moving = json!({ "button": "left", "buttons": 1, "clickCount": 1, "modifiers": 8 });
    page.mouse("mousePressed", to, moving.clone());
    page.mouse("mouseMoved", from, moving.clone());
    page.mouse("mouseReleased", from, moving);
    let moved = page.view();
    assert!(moved[0] > dragged[0] && (moved[1] - moved[0] - (dragged[1] - dragged[0])).abs() < 1e-6, "{moved:?}");
    page.assert_content();
}

#[test]
fn targets_can_be_chosen_and_regions_sorted_in_the_dark_scheme() {
    let (mut source, other) = (made::phases_of(77, 60), made::phases_of(78, 60));
    source.rows.extend(other.rows.into_iter().map(|row| isotherm_record::Row { cost: None, ..row }));
    source.rows.sort_by_key(|row| row.time);
    let mut page = installed_or_skip!(Page::open(&source, true, true));
    page.settle();
    assert_eq!(page.eval("getComputedStyle(document.body).backgroundColor"), json!("rgb(15, 19, 24)"));
    assert_eq!(page.eval("document.getElementById('target').options.length"), json!(2));
    page.eval(
        "(() => { const s = document.getElementById('target'); s.value = 1; s.dispatchEvent(new Event('change')); })()",
    );
    page.settle();
    assert!(page.eval(COLOURS).as_u64().unwrap() > 10);
    page.eval("document.querySelector('#table th[data-key=size]').click()");
    let first = page.eval("document.querySelector('#table tbody tr').cells[1].textContent");
    assert_eq!(first, json!("44 MiB"));
    page.screenshot("dark");
    page.assert_content();
}

#[test]
fn what_is_in_swap_has_a_colour_and_a_line_of_its_own() {
    let mut page = installed_or_skip!(Page::open(&made::with_heap_in_swap(20), false, true));
    page.settle();
    assert!(page.text("view").contains("64 MiB in memory, 28 MiB in swap, 28 MiB absent at the end"));
    assert!(page.text("legend").contains("in swap"));
    let reserved = page.on_map(0.5, 0.99);
    page.mouse("mouseMoved", reserved, json!({}));
    assert!(page.text("readout").contains("[heap] · nothing in memory · "), "{}", page.text("readout"));
    let heap = page.on_map(0.5, 0.9);
    page.mouse("mouseMoved", heap, json!({}));
    let readout = page.text("readout");
    assert!(readout.contains("[heap] · mostly in swap · ") && readout.contains(" in swap of "), "{readout}");
    page.screenshot("swap");
    let used = page.on_map(0.5, 0.7);
    page.mouse("mouseMoved", used, json!({}));
    let readout = page.text("readout");
    assert!(readout.contains("anonymous · access rate 0 %") && readout.contains(" in memory of "), "{readout}");
    // The regions, and the heap, which has none.
    let last = "[...[...document.querySelectorAll('#table tbody tr')].at(-1).cells].map(cell => cell.textContent)";
    page.eval("document.querySelector('#table th[data-key=swapped]').click()");
    let first = page.eval(&last.replace(".at(-1)", "[0]"));
    assert_eq!([2, 5, 7, 8, 9].map(|column| first[column].clone()), ["", "", "8 MiB", "16 MiB", "[heap]"]);
    page.eval("document.querySelector('#table th[data-key=start]').click()");
    assert_eq!([8, 9].map(|column| page.eval(last)[column].clone()), ["12 MiB", "anonymous"]);
    assert!(page.text("moment").contains("5 regions; 8 MiB absent outside of regions"), "{}", page.text("moment"));
    page.assert_content();
}

#[test]
fn the_page_can_be_read_without_scripts() {
    let mut page = installed_or_skip!(Page::open(&made::phases(60), false, false));
    assert!(
        page.eval("document.querySelector('noscript svg image').getBoundingClientRect().width").as_f64().unwrap()
            > 300.0
    );
    assert_eq!(page.eval("document.getElementById('heatmap').hidden"), json!(true));
    page.screenshot("noscript");
    page.assert_content();
}

#[test]
fn names_of_the_watched_process_cannot_run_scripts() {
    let mut source = made::phases(20);
    for row in &mut source.rows {
        let mut mappings = row.target.mappings.to_vec();
        mappings[2].name = "/x/</script><script>document.title='owned'</script><img src=https://example.com/x>".into();
        row.target.mappings = mappings.into();
    }
    let mut page = installed_or_skip!(Page::open(&source, false, true));
    let at = page.on_map(0.5, 0.5);
    page.mouse("mouseMoved", at, json!({}));
    assert!(page.text("readout").contains("</script><script>"), "{}", page.text("readout"));
    assert_ne!(page.eval("document.title"), json!("owned"));
    assert_eq!(page.eval("document.images.length"), json!(0));
    page.assert_content();
    // The content security policy forbids any fetch.
    let refused = page.eval(
        "new Promise(done => {
            addEventListener('securitypolicyviolation', event => done(event.effectiveDirective), { once: true });
            document.body.append(Object.assign(new Image(), { src: 'https://example.com/x' }));
        })",
    );
    assert_eq!(refused, json!("img-src"));
}

#[test]
fn the_activity_of_schemes_has_a_section_of_its_own() {
    let mut page = installed_or_skip!(Page::open(&made::schemed(60), false, true));
    page.settle();
    let section = "document.getElementById('h-schemes').closest('section')";
    assert_eq!(page.eval(&format!("{section}.querySelectorAll('table')[0].tBodies[0].rows.length")), json!(2));
    // The facts of each scheme are visible once its element is unfolded.
    let seen = format!("{section}.querySelector('details dl').checkVisibility()");
    assert_eq!(page.eval(&seen), json!(false));
    page.eval(&format!("{section}.querySelectorAll('details').forEach(each => each.open = true)"));
    page.settle();
    assert_eq!(page.eval(&seen), json!(true));
    // Rates of two schemes, the tuned quota of one, major faults, RSS, PSS and swap, PSI, and free memory.
    assert_eq!(
        page.eval(&format!("{section}.querySelectorAll('path.curve, path.second, path.third').length")),
        json!(9)
    );
    page.screenshot("schemes");
    page.assert_content();
    let mut dark = installed_or_skip!(Page::open(&made::schemed(60), true, false));
    dark.screenshot("schemes-dark");
    dark.assert_content();
}
