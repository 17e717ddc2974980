//! A page in headless Chromium, controlled by its DevTools protocol over a pipe.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

/// How long a browser may take in all, unless a test needs longer.
const MOST: Duration = Duration::from_secs(120);

/// A page in a browser. The browser ends when this is dropped.
#[derive(Debug)]
pub struct Page {
    browser: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    /// Problems of the page: exceptions, violations of its policy, console errors, requests.
    complaints: Vec<String>,
    /// Where else requests may go than to files.
    server: Option<String>,
    last_id: u64,
    loaded: bool,
    _profile: tempfile::TempDir,
}

impl Page {
    /// Starts a browser. Requests to `server`, the beginning of a URL, are no problem; all others are.
    ///
    /// # Errors
    /// The reason to skip the test.
    ///
    /// # Panics
    /// Panics if the browser does not do what it should.
    pub fn start(dark: bool, script: bool, server: Option<&str>) -> Result<Self, String> {
        Self::start_for(MOST, dark, script, server)
    }

    /// The same for at most this time.
    ///
    /// # Errors
    /// The reason to skip the test.
    ///
    /// # Panics
    /// Panics if the browser does not do what it should.
    pub fn start_for(most: Duration, dark: bool, script: bool, server: Option<&str>) -> Result<Self, String> {
        let chromium = std::env::var("ISOTHERM_CHROMIUM").unwrap_or_else(|_| "chromium".into());
        let found = Command::new(&chromium).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(format!("{chromium} cannot be run; install chromium"));
        }
        let profile = tempfile::tempdir().unwrap();
        // Chromium uses descriptors 3 and 4, to which the shell moves its input and output. If it hangs it is ended,
        // and the next read fails.
        let mut browser = Command::new("sh")
            .args(["-c", "exec timeout -k 5 \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .args([&most.as_secs().to_string(), &chromium])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--window-size=1300,1000", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (browser.stdin.take().unwrap(), BufReader::new(browser.stdout.take().unwrap()));
        let mut page = Self {
            browser,
            to,
            from,
            session: None,
            complaints: vec![],
            server: server.map(str::to_owned),
            last_id: 0,
            loaded: false,
            _profile: profile,
        };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = page.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        page.session = Some(attached["sessionId"].as_str().unwrap().into());
        for domain in ["Page", "Runtime", "Log"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        // By default the renderer keeps up to 100 MB of responses, which would count as memory of the page.
        page.call("Network.enable", json!({ "maxTotalBufferSize": 1 << 20, "maxResourceBufferSize": 1 << 20 }));
        let scheme = if dark { "dark" } else { "light" };
        page.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        page.call("Emulation.setScriptExecutionDisabled", json!({ "value": !script }));
        Ok(page)
    }

    /// Opens a page, and waits until it is loaded.
    pub fn open(&mut self, url: &str) {
        self.loaded = false;
        let begun = self.call("Page.navigate", json!({ "url": url }));
        // Another place in the same page is not loaded.
        while begun.get("loaderId").is_some() && !self.loaded {
            self.next();
        }
    }

    /// Makes the window as large as this, in pixels. A narrow one is that of a phone.
    pub fn resize(&mut self, width: u32, height: u32) {
        let (phone, scale) = (width < 600, if width < 600 { 2 } else { 1 });
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.settle();
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// Panics if that takes more than 30 s.
    #[track_caller]
    pub fn sees(&mut self, what: &str, expression: &str) {
        let start = Instant::now();
        while self.eval(&format!("Boolean({expression})")) != json!(true) {
            let text = self.eval("document.body.innerText");
            assert!(start.elapsed() < Duration::from_secs(30), "timed out waiting until {what}; the page is:\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Calls a method of the protocol and waits for its answer.
    ///
    /// # Panics
    /// Panics if the browser refuses.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
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
                let is_served = self.server.as_ref().is_some_and(|server| url.starts_with(server));
                if !is_served && !url.starts_with("file:") && !url.starts_with("data:") {
                    self.complaints.push(format!("request to {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// The value of an expression. If it is a promise, the value to which it resolves.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until the page has painted.
    pub fn settle(&mut self) {
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
    }

    /// The text of an element.
    pub fn text(&mut self, id: &str) -> String {
        self.eval(&format!("document.getElementById('{id}').textContent")).as_str().unwrap().into()
    }

    /// The visible part of the heatmap: start and end in time, first and last row.
    pub fn view(&mut self) -> Vec<f64> {
        self.settle();
        let view = self.eval("document.getElementById('map').dataset.view");
        view.as_str().unwrap().split(' ').map(|v| v.parse().unwrap()).collect()
    }

    /// The point of the window at these shares of the width and height of the heatmap.
    pub fn on_map(&mut self, across: f64, down: f64) -> (f64, f64) {
        let script = "(() => {
            const b = document.getElementById('map').getBoundingClientRect();
            return [b.x, b.y, b.width, b.height];
        })()";
        let found = self.eval(script);
        let v = |i: usize| found[i].as_f64().unwrap();
        (v(0) + 118.0 + (v(2) - 268.0) * across, v(1) + 6.0 + (v(3) - 32.0) * down)
    }

    /// Does something with the mouse.
    pub fn mouse(&mut self, kind: &str, (x, y): (f64, f64), more: Value) {
        let mut params = json!({ "type": kind, "x": x, "y": y, "button": "none" });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.call("Input.dispatchMouseEvent", params);
        self.settle();
    }

    /// Takes a picture, if `ISOTHERM_SCREENSHOTS` names a directory for it.
    pub fn screenshot(&mut self, name: &str) {
        if let Ok(dir) = std::env::var("ISOTHERM_SCREENSHOTS") {
            let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
            let png = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
            std::fs::write(Path::new(&dir).join(format!("{name}.png")), png).unwrap();
        }
    }

    /// The memory of the processes that render pages, in bytes, without what they share with others. There may be a
    /// spare one.
    pub fn memory(&self) -> u64 {
        let mut tree = vec![self.browser.id()];
        let mut all: Vec<(u32, u32)> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| {
                let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
                let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
                Some((pid, parent))
            })
            .collect();
        // A child may have a lower ID than its parent.
        while let Some(nth) = all.iter().position(|(_, parent)| tree.contains(parent)) {
            tree.push(all.swap_remove(nth).0);
        }
        let renders = |pid: &&u32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.split(|&byte| byte == 0 || byte == b' ').any(|word| word == b"--type=renderer"))
        };
        let own = |pid: &u32| {
            let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
            let pages: Vec<u64> = statm.split(' ').filter_map(|text| text.trim().parse().ok()).collect();
            pages.get(1).zip(pages.get(2)).map_or(0, |(resident, shared)| resident.saturating_sub(*shared) * 4096)
        };
        tree.iter().filter(renders).map(own).sum()
    }

    /// The problems so far, which are forgotten.
    pub fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Asserts that there was no problem.
    ///
    /// # Panics
    /// Panics if there was one.
    pub fn assert_content(&self) {
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
    }
}
