//! The live page of a real daemon with real targets, in headless Chromium.
//!
//! Needs `chromium`, or the program that `ISOTHERM_CHROMIUM` names; without it, the tests are skipped. With
//! `ISOTHERM_SCREENSHOTS` set to a directory, the tests write screenshots to it.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_testing::browser::Page;
use isotherm_testing::{installed_or_skip, or_skip};
use rustix::process::Signal;
use serde_json::json;

use crate::common::{self, Kept, Place, eventually, signal};

/// Two targets, and a daemon that watches them in the groups `hot` and `both` and serves its page.
struct Served {
    place: Place,
    daemon: Kept,
    targets: [Kept; 2],
    /// Where the page is.
    address: String,
}

impl Served {
    /// Starts all. `page` are further fields of the page, and `more` further lines of the configuration.
    fn new(page: &str, more: &str) -> Self {
        let place = Place::new();
        let targets = ["hot.toml", MARKUP].map(|file| {
            std::fs::write(place.path(file), common::HOT_IN_COLD).unwrap();
            let mut command = place.isotherm(&["workload", file, "--time", "3600s"]);
            Kept(command.stdout(Stdio::null()).spawn().unwrap())
        });
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let [one, two] = targets.each_ref().map(|target| target.0.id());
        let config = format!(
            "cpu_budget: 20%\nsocket: {}\nhistory: {{directory: {}}}\npage: {{listen: \"{address}\"{page}}}\n\
             groups:\n  - name: hot\n    select: {{pid: [{one}]}}\n    schemes: [{{name: count, action: stat}}]\n  \
             - name: both\n    select: {{pid: [{one}, {two}]}}\n{more}",
            place.path("api.sock").display(),
            place.path("state").display(),
        );
        std::fs::write(place.path("isotherm.yaml"), config).unwrap();
        let daemon = Self::start(&place);
        eventually("there is something to report", || {
            let reports =
                |kind| place.run(&["ctl", "--socket", "api.sock", "report", "both", kind, "--json"]).status == 0;
            ["heatmap", "wss", "idle-time"].into_iter().all(reports)
        });
        Self { place, daemon, targets, address }
    }

    fn start(place: &Place) -> Kept {
        let log = std::fs::File::create(place.path("log")).unwrap();
        let mut command = place.isotherm(&["daemon", "--config", "isotherm.yaml"]);
        let mut daemon = Kept(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        eventually("the socket is there", || {
            let log = std::fs::read_to_string(place.path("log")).unwrap_or_default();
            assert!(daemon.0.try_wait().unwrap().is_none(), "{log}");
            place.path("api.sock").exists()
        });
        daemon
    }

    /// Ends the daemon.
    fn end(&mut self) {
        signal(&self.daemon.0, Signal::TERM);
        eventually("the daemon has ended", || self.daemon.0.try_wait().unwrap().is_some());
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// A browser that may ask this daemon.
    fn browser(&self, most: Duration, dark: bool) -> Result<Page, String> {
        Page::start_for(most, dark, true, Some(&self.url("")))
    }

    /// The status and the head of the answer to a request by curl with these arguments. An error is the reason to skip
    /// the test.
    fn asked(&self, path: &str, arguments: &[&str]) -> Result<(u16, String), String> {
        let mut command = Command::new("curl");
        command.args(["-s", "-m", "10", "-o", "/dev/null", "-D", "-"]).args(arguments).arg(self.url(path));
        let output = command.output().map_err(|error| format!("curl cannot be run: {error}"))?;
        let head = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.unwrap_or_else(|| panic!("{path}: {output:?}")), head))
    }
}

/// The argument of one of the targets, which would make an element if a page took it for markup.
const MARKUP: &str = "<b id=bad>&lt;.toml";

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

/// The number of colours of the heatmap.
const PICTURE: &str = "(() => {
    const map = document.getElementById('map'), seen = new Map(), copy = document.createElement('canvas');
    [copy.width, copy.height] = [map.width, map.height];
    const context = copy.getContext('2d', { willReadFrequently: true });
    if (map.width && map.height) context.drawImage(map, 0, 0);
    // Left of it are labels, which have many colours for the sake of smooth letters.
    const data = context.getImageData(120, 10, Math.max(map.width - 150, 1), Math.max(map.height - 40, 1)).data;
    for (let i = 0; i < data.length; i += 4) {
        const colour = data.slice(i, i + 3).join();
        seen.set(colour, (seen.get(colour) ?? 0) + 1);
    }
    return seen.size;
})()";

/// Whether the cell of a table has a figure with a unit.
fn has_figure(row: &str, cell: usize) -> String {
    format!("/^[≥≈]? ?[0-9.]+ [KMG]iB/.test(document.querySelector({row:?})?.cells[{cell}].textContent)")
}

#[test]
fn the_page_shows_what_is_there_and_goes_on_after_a_restart_of_the_daemon() {
    let mut served = Served::new("", "");
    let mut page = installed_or_skip!(served.browser(SECONDS(200), false));
    page.open(&served.url(""));
    let rows = "document.querySelectorAll('#groups tbody tr').length === 2";
    page.sees("both groups are listed", rows);
    let first = "#groups tbody tr[data-key=both]";
    page.sees("the groups have figures", &has_figure(first, 2));
    page.sees("what is hot is known", &has_figure(first, 4));
    page.sees("the bars are drawn", "document.querySelectorAll('#groups .stack rect').length >= 4");
    page.sees("both have their processes", &format!("document.querySelector({first:?}).cells[1].textContent === '2'"));
    page.sees("the budget is told", "/ of 20 %$/.test(document.querySelector('#daemon dd').textContent)");
    page.screenshot("overview");

    // Keys open a group.
    let key = |page: &mut Page, key: &str| {
        let event = format!("new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true, cancelable: true }})");
        page.eval(&format!("document.activeElement.dispatchEvent({event}) || 1"));
    };
    key(&mut page, "j");
    let focused = page.eval("document.activeElement.textContent");
    assert_eq!(focused, json!("both"));
    page.eval("document.activeElement.click()");
    page.sees("its heatmap is shown", "document.getElementById('map').checkVisibility()");
    assert_eq!(page.text("h-group"), "both");
    page.sees("the heatmap has colours", &format!("{PICTURE} > 5"));
    page.sees("it has two lanes", "document.querySelectorAll('#lanes li').length === 2");
    page.sees("it has regions", "document.querySelectorAll('#table tbody tr').length > 3");
    page.sees("the working set is drawn", "document.querySelector('#wss svg path.curve')");
    page.sees("the idle time is drawn", "document.querySelector('#idle svg')");
    page.sees("it has processes", "document.querySelectorAll('#processes tbody tr').length === 2");
    assert_eq!(page.eval("document.getElementById('no-schemes').checkVisibility()"), json!(true));

    // The picture scrolls.
    let end = |page: &mut Page| page.view()[1];
    let before = end(&mut page);
    page.sees(
        "the time goes on",
        &format!("document.getElementById('map').dataset.view.split(' ')[1] > {}", before + 2.0),
    );
    page.sees(
        "regions are those of the stream",
        "/: [0-9]+ regions/.test(document.getElementById('moment').textContent)",
    );
    let moment = page.text("moment");
    page.sees("they change", &format!("document.getElementById('moment').textContent !== {moment:?}"));

    // Back in the history it stays, and says so.
    key(&mut page, ",");
    page.sees("an earlier time is shown", "document.getElementById('now').getAttribute('aria-pressed') === 'false'");
    page.sees(
        "it is told that nothing was there",
        "/nothing|no history/i.test(document.getElementById('missing').textContent)",
    );
    key(&mut page, "l");
    page.sees("the present is back", "document.getElementById('map').checkVisibility()");

    // The daemon goes away and comes back.
    served.end();
    page.sees("it is told", "document.getElementById('link').dataset.state === 'broken'");
    page.screenshot("broken");
    served.daemon = Served::start(&served.place);
    page.sees("the page is live again", "document.getElementById('link').dataset.state === 'live'");
    let before = page.text("moment");
    page.sees("regions come again", &format!("document.getElementById('moment').textContent !== {before:?}"));
    let broken = page.complaints();
    let expected = |complaint: &String| complaint.contains("net::ERR") || complaint.contains("Failed to load resource");
    assert!(broken.iter().all(expected), "{broken:#?}");

    // Schemes have their figures.
    key(&mut page, "Escape");
    page.sees("all groups are shown", "document.getElementById('groups').checkVisibility()");
    page.eval("document.querySelector('#groups tr[data-key=hot] a').click()");
    page.sees("the scheme is at work", "/count/.test(document.querySelector('#schemes tbody tr')?.textContent)");
    page.sees("it was applied", &has_figure("#schemes tbody tr", 3));
    page.assert_content();
}

#[test]
fn names_are_text_and_each_memory_node_has_its_figures() {
    let served = Served::new("", "");
    let mut page = installed_or_skip!(served.browser(SECONDS(120), false));
    page.open(&served.url("#/group/both"));
    page.sees("the processes are listed", "document.querySelectorAll('#processes tbody tr').length === 2");
    page.sees("the command is text", &format!("document.getElementById('processes').innerText.includes({MARKUP:?})"));
    let titles = "[...document.querySelectorAll('#lanes .name')].map(lane => lane.title).join()";
    page.sees("the lanes are text", &format!("{titles}.includes({MARKUP:?})"));
    page.sees("the pictures are drawn", "document.querySelector('#wss svg') && document.querySelector('#idle svg')");
    assert_eq!(page.eval("document.getElementById('bad')"), json!(null));

    page.sees("the scheme is known", "overview.newest?.groups.some(group => group.schemes.length)");
    // What a machine with two memory nodes would say, and a group whose name is markup.
    let fed = r#"(() => {
        const next = structuredClone(overview.newest), group = next.groups.find(group => group.name === 'both');
        const reclaimable = { bytes: 3 * 2 ** 20, idle_for_ns: 60e9 };
        group.nodes = [0, 2].map(node => ({
            node, memory: { ...group.memory, resident: (node + 1) * 2 ** 30, unknown: 0 }, reclaimable,
        }));
        const of = group.schemes[0] ?? next.groups.find(group => group.schemes.length).schemes[0];
        const schemes = [{ ...of, name: '<b id=bad>' }];
        next.groups.push({ ...group, name: '<b id=bad>x', why: '<b id=bad>', schemes });
        next.problems = ['<b id=bad>'];
        overview.take(next);
        groupPage.show();
        const cells = row => [...row.cells].slice(0, 5).map(cell => cell.textContent);
        const links = [...document.querySelectorAll('#groups a')].map(link => [link.textContent, link.hash]);
        return {
            shown: !document.getElementById('nodes-section').hidden,
            nodes: [...document.querySelectorAll('#nodes tbody tr')].map(cells),
            links: links.filter(([name]) => name.includes('bad')),
            problem: document.getElementById('problems').textContent,
            bad: document.getElementById('bad'),
        };
    })()"#;
    let found = page.eval(fed);
    assert_eq!((&found["shown"], &found["bad"]), (&json!(true), &json!(null)), "{found}");
    assert_eq!(found["links"], json!([["<b id=bad>x", "#/group/%3Cb%20id%3Dbad%3Ex"]]), "{found}");
    assert_eq!(found["problem"], json!("<b id=bad>"));
    let nodes = found["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2, "{found}");
    for (row, (name, resident)) in nodes.iter().zip([("node 0", "1 GiB"), ("node 2", "3 GiB")]) {
        assert_eq!((&row[0], &row[1]), (&json!(name), &json!(resident)), "{found}");
        assert!(row[3].as_str().unwrap().ends_with("iB"), "{found}");
        assert_eq!(row[4], json!("3 MiB idle 60 s"), "{found}");
    }
    // Nobody watches such a group.
    page.eval("location.hash = '#/group/%3Cb%20id%3Dbad%3Ex'");
    page.sees("its name is text", "document.getElementById('h-group').textContent === '<b id=bad>x'");
    page.sees("it is told", "document.getElementById('missing').textContent.includes('<b id=bad>x')");
    assert_eq!(page.eval("document.getElementById('bad')"), json!(null));
    page.complaints();
}

#[test]
fn the_page_has_two_colours_and_three_widths() {
    let served = Served::new("", "");
    let mut page = installed_or_skip!(served.browser(SECONDS(200), true));
    page.open(&served.url("#/group/both"));
    page.sees("the heatmap has colours", &format!("{PICTURE} > 5"));
    page.sees("the working set is drawn", "document.querySelector('#wss svg path.curve')");
    page.sees("it has processes", "document.querySelectorAll('#processes tbody tr').length === 2");
    let back = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(page.eval(back), json!("rgb(15, 19, 24)"));
    let key = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'd', bubbles: true })) || 1";
    page.eval(key);
    assert_eq!(page.eval(back), json!("rgb(255, 255, 255)"), "the user has the last word");
    for dark in [false, true] {
        for (name, width, height) in [("phone", 390, 844), ("tablet", 820, 1180), ("desktop", 1440, 900)] {
            page.resize(width, height);
            let colours = if dark { "dark" } else { "light" };
            for (place, what) in [("#/group/both", "group"), ("#/", "groups")] {
                page.eval(&format!("location.hash = {place:?}"));
                page.settle();
                let wide = page.eval("document.documentElement.scrollWidth");
                assert!(wide.as_u64().unwrap() <= u64::from(width), "{what}, {name}: the page is {wide} wide");
                if what == "group" {
                    page.sees("the heatmap has colours", &format!("{PICTURE} > 5"));
                    page.sees("the working set is drawn", "document.querySelector('#wss svg path.curve')");
                    page.sees("it has processes", "document.querySelectorAll('#processes tbody tr').length === 2");
                }
                page.screenshot(&format!("{what}-{name}-{colours}"));
            }
        }
        page.eval(key);
    }
    page.assert_content();
}

#[test]
fn other_sites_and_those_without_the_token_get_nothing() {
    let served = Served::new("", "");
    let asks = |path: &str, arguments: &[&str]| served.asked(path, arguments);
    let (status, head) = or_skip!(asks("", &[]));
    assert_eq!(status, 200);
    for part in [
        "content-security-policy: default-src 'none'; script-src 'sha256-",
        "connect-src 'self'; frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cross-origin-resource-policy: same-origin",
        "cache-control: no-store",
    ] {
        assert!(head.contains(part), "{part} is not in {head}");
    }
    assert!(!head.contains("unsafe-inline") && !head.contains("access-control"), "{head}");
    let status = |path: &str, arguments: &[&str]| asks(path, arguments).unwrap().0;
    assert_eq!(status("v1/groups", &[]), 200);
    for header in [
        "Host: evil.example.org",
        "Origin: http://evil.example.org",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        assert_eq!(status("v1/groups", &["-H", header]), 403, "{header}");
    }
    assert_eq!(status("", &["-H", "Host: evil.example.org"]), 403);
    // Nothing is changed by TCP.
    for (method, path) in [("POST", "v1/groups/hot/pause"), ("DELETE", "v1/groups/hot"), ("POST", "v1/reload")] {
        assert_eq!(status(path, &["-X", method]), 403, "{method} {path}");
    }
    let ran = served.place.run(&["ctl", "--socket", "api.sock", "groups"]);
    assert_eq!(ran.out, "both\nhot\n");
    // What comes through the Unix socket in a browser, by a tunnel, is checked in the same way.
    let socket = served.place.path("api.sock");
    let by_socket = ["--unix-socket", socket.to_str().unwrap(), "-X", "POST", "-H", "Origin: http://evil.example.org"];
    assert_eq!(status("v1/groups/hot/pause", &by_socket), 403);
    assert_eq!(status("v1/groups/hot/pause", &by_socket[..4]), 204);
}

#[test]
fn a_page_with_a_token_asks_for_it() {
    let place = Place::new();
    let token = place.path("token");
    std::fs::write(&token, "a-long-secret-of-a-test\n").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let served = Served::new(&format!(", token_file: {}, hosts: [memory.example.org]", token.display()), "");
    let status = |path: &str, arguments: &[&str]| served.asked(path, arguments).map(|(status, _)| status);
    assert_eq!(or_skip!(status("v1/groups", &[])), 401);
    assert_eq!(status("v1/groups", &["-H", "Authorization: Bearer a-long-secret-of-another"]), Ok(401));
    assert_eq!(status("v1/groups", &["-H", "Authorization: Bearer a-long-secret-of-a-test"]), Ok(200));
    assert_eq!(status("", &["-H", "Host: memory.example.org"]), Ok(200));
    assert_eq!(status("metrics", &[]), Ok(401));
    let mut page = installed_or_skip!(served.browser(SECONDS(120), false));
    page.open(&served.url(""));
    page.sees("the token is asked for", "document.getElementById('token').checkVisibility()");
    let enter = |page: &mut Page, token: &str| {
        page.eval(&format!("document.getElementById('token').value = {token:?}"));
        page.eval("document.getElementById('ask').requestSubmit()");
    };
    enter(&mut page, "wrong");
    page.sees("it is asked for again", "document.getElementById('token').checkVisibility()");
    enter(&mut page, "a-long-secret-of-a-test");
    page.sees("the groups are shown", "document.querySelectorAll('#groups tbody tr').length === 2");
    let log = || std::fs::read_to_string(served.place.path("log")).unwrap_or_default();
    assert!(log().contains("has a wrong token for the page"), "{}", log());
    assert!(served.targets.iter().all(|target| target.0.id() > 0));
    page.complaints();
    page.open(&served.url("#token=a-long-secret-of-a-test"));
    page.sees("the groups are shown", "document.querySelectorAll('#groups tbody tr').length === 2");
    assert_eq!(page.eval("location.hash"), json!("#/"));
    page.assert_content();
}

/// Measures the memory of the page. `ISOTHERM_PAGE_MINUTES` says for how long; without it, the test is short.
#[test]
fn the_memory_of_the_page_does_not_grow() {
    let minutes = std::env::var("ISOTHERM_PAGE_MINUTES").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.5);
    let time = Duration::from_secs_f64(minutes * 60.0);
    let served = Served::new("", "");
    let mut page = installed_or_skip!(served.browser(time + SECONDS(120), false));
    page.open(&served.url("#/group/both"));
    page.sees("the heatmap has colours", &format!("{PICTURE} > 5"));
    let memory = |page: &mut Page| {
        page.call("HeapProfiler.collectGarbage", json!({}));
        let heap = page.eval("performance.memory.usedJSHeapSize").as_f64().unwrap();
        (page.memory() as f64 / f64::from(1 << 20), heap / f64::from(1 << 20))
    };
    let (start, first) = (Instant::now(), memory(&mut page));
    let mut most = first;
    while start.elapsed() < time {
        // Reading events keeps the pipe of the browser empty.
        page.eval("new Promise(done => setTimeout(() => done(1), 5000))");
        let now = memory(&mut page);
        println!("{:.0} s: {:.0} MiB, of JavaScript {:.1} MiB", start.elapsed().as_secs_f64(), now.0, now.1);
        most = (most.0.max(now.0), most.1.max(now.1));
    }
    println!(
        "{minutes} min: {:.0} MiB at the start, {:.0} MiB at most; of JavaScript {:.1} and {:.1} MiB",
        first.0, most.0, first.1, most.1
    );
    page.screenshot("later");
    assert!(most.0 < 200.0 && most.1 < 40.0, "{first:?} MiB at the start, {most:?} MiB at most");
    page.assert_content();
}
