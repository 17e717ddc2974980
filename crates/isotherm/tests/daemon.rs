//! The daemon with a real target: asked by `ctl` and by HTTP, changed, reloaded and ended.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "cli/common/mod.rs"]
mod common;

#[path = "daemon/acting.rs"]
mod acting;
#[path = "daemon/advice.rs"]
mod advice;
#[path = "daemon/clients.rs"]
mod clients;
#[path = "daemon/fleet.rs"]
mod fleet;
#[path = "../../isotherm-fleet/tests/made/mod.rs"]
mod made;

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Kept, Place, Ran, eventually, is_root, signal};
use isotherm_agent::api::encoded;
use isotherm_agent::{Client, ClientError};
use isotherm_testing::or_skip;
use rustix::process::Signal;
use serde_json::{Value, json};

/// A target, and a daemon that watches it in the group `a`.
struct Running {
    place: Place,
    daemon: Kept,
    target: Kept,
    client: Client,
}

/// A process that touches memory all the time.
fn target(place: &Place) -> Kept {
    std::fs::write(place.path("hot.toml"), common::HOT_IN_COLD).unwrap();
    let mut command = place.isotherm(&["workload", "hot.toml", "--time", "600s"]);
    Kept(command.stdout(Stdio::null()).spawn().unwrap())
}

/// The configuration with the group `a`, which watches this process, and further lines.
fn config(place: &Place, target: &Kept, more: &str) -> String {
    let (socket, state) = (place.path("api.sock"), place.path("state"));
    format!(
        "cpu_budget: 20%\nsocket: {}\nhistory: {{directory: {}}}\n\
         groups:\n  - name: a\n    select: {{pid: [{}]}}\n{more}",
        socket.display(),
        state.display(),
        target.0.id()
    )
}

impl Running {
    /// Starts both, and waits until the group has been surveyed.
    fn new(more: &str) -> Self {
        Self::with(|_| more.into())
    }

    /// The same, with lines that are made of the process ID of the target.
    fn with(more: impl FnOnce(u32) -> String) -> Self {
        let place = Place::new();
        let target = target(&place);
        std::fs::write(place.path("isotherm.yaml"), config(&place, &target, &more(target.0.id()))).unwrap();
        let log = std::fs::File::create(place.path("log")).unwrap();
        let mut command = place.isotherm(&["daemon", "--config", "isotherm.yaml"]);
        let mut daemon = Kept(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        eventually("the socket takes connections", || {
            assert!(daemon.0.try_wait().unwrap().is_none(), "{}", place.text("log"));
            UnixStream::connect(place.path("api.sock")).is_ok()
        });
        let client = Client::new(&place.path("api.sock")).unwrap();
        let running = Self { place, daemon, target, client };
        eventually("the group was surveyed, and there is a snapshot", || {
            let status = running.get("/v1/groups/a");
            let is_surveyed = status["memory"]["resident"].as_u64().is_some_and(|bytes| bytes > 64 << 20);
            is_surveyed && running.client.ask("GET", "/v1/groups/a/snapshot", None).is_ok()
        });
        running
    }

    fn get(&self, path: &str) -> Value {
        let bytes = self.client.ask("GET", path, None).unwrap_or_else(|error| panic!("{path}: {error:?}"));
        serde_json::from_slice(&bytes).unwrap()
    }

    /// The status and the detail of a refusal.
    fn refused(&self, method: &str, path: &str, body: Value) -> (u16, String) {
        match self.client.ask(method, path, Some(body.to_string())) {
            Err(ClientError::Refused(problem)) => (problem.status, problem.detail),
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    fn ctl(&self, arguments: &[&str]) -> Ran {
        self.place.run(&[&["ctl", "--socket", "api.sock"], arguments].concat())
    }

    /// The output of `ctl`, which succeeds.
    fn said(&self, arguments: &[&str]) -> String {
        let ran = self.ctl(arguments);
        assert_eq!((ran.status, &*ran.err), (0, ""), "{arguments:?}");
        ran.out
    }

    /// Ends the daemon by SIGTERM.
    fn end(mut self) -> Place {
        signal(&self.daemon.0, Signal::TERM);
        eventually("the daemon has ended", || self.daemon.0.try_wait().unwrap().is_some());
        assert_eq!(self.daemon.0.wait().unwrap().code(), Some(0), "{}", self.place.text("log"));
        assert!(!self.place.path("api.sock").exists());
        self.place
    }
}

impl Place {
    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The recordings of the history of a group, by their names.
    fn history(&self, group: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("state/history").join(group)).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

#[test]
fn a_daemon_tells_what_it_watches_and_keeps_it() {
    let running = Running::new("");
    let pid = running.target.0.id();
    let status = running.said(&["status"]);
    assert!(status.starts_with("a  watching  1 process  ") && status.contains("in memory"), "{status}");
    let status = running.said(&["status", "a"]);
    assert!(status.contains(&format!("{pid}  ")) && status.contains("workload hot.toml"), "{status}");
    assert!(running.said(&["status", "--json"]).contains("\"state\": \"watching\""));
    assert_eq!(running.said(&["groups"]), "a\n");
    assert_eq!(running.said(&["health"]), "all is well\n");

    let snapshot: Value = serde_json::from_str(&running.said(&["snapshot", "a"])).unwrap();
    assert_eq!(snapshot["targets"][0]["pid"], pid);
    assert!(snapshot["targets"][0]["regions"].as_array().unwrap().len() > 3);
    let events = running.said(&["stream", "a", "--count", "3"]);
    assert_eq!(events.lines().filter(|line| line.starts_with("{\"event\":\"")).count(), 3, "{events}");

    // A mark is made by the run, soon after it was asked for.
    let has_mark = |path: &Path, text: &str| {
        let recording = isotherm_record::Recording::open(path);
        recording.is_ok_and(|recording| recording.marks().any(|mark| mark.is_ok_and(|mark| &*mark.text == text)))
    };
    running.said(&["mark", "a", "deployed"]);
    let history = || running.place.history("a").into_iter();
    eventually("the mark is in the history", || history().any(|path| has_mark(&path, "deployed")));
    let made = running.said(&["record", "a", "mine"]);
    assert!(made.trim_end().ends_with("state/recordings/mine.rec"), "{made}");
    assert_eq!(running.get("/v1/groups/a")["recordings"], json!(["mine"]));
    let (status, detail) = running.refused("POST", "/v1/groups/a/recordings", json!({ "name": "mine" }));
    assert!(status == 409 && detail.contains("another name"), "{detail}");
    let (status, _) = running.refused("POST", "/v1/groups/a/recordings", json!({ "name": "../mine" }));
    assert_eq!(status, 422);
    running.said(&["mark", "a", "recorded"]);
    eventually("there is something to report", || running.ctl(&["report", "a", "wss", "--last", "1m"]).status == 0);
    let report: Value = serde_json::from_str(&running.said(&["report", "a", "wss", "--last", "1m", "--json"])).unwrap();
    assert!(report.is_object(), "{report}");
    let connected = |more: &[&str]| {
        running.place.run(&[&["report", "wss", "--connect", "a", "--socket", "api.sock"], more].concat())
    };
    let asked = connected(&["--last", "1m", "--window", "10s", "--format", "json"]);
    let found: Value = serde_json::from_str(&asked.out).unwrap_or_else(|error| panic!("{error}: {asked:?}"));
    assert_eq!(found["window_ns"], 10_000_000_000_u64, "{found}");
    assert_eq!(connected(&["--by", "process", "--hot", "5Hz"]).status, 0);
    assert_eq!(connected(&["--time", "1s:"]).status, 2);
    let refused = running.ctl(&["report", "b", "wss"]);
    assert!(refused.status == 1 && refused.err.contains("there is no group \"b\""), "{refused:?}");
    let recorded = running.place.path("state/recordings/mine.rec");
    eventually("the mark is in the recording", || has_mark(&recorded, "recorded"));
    running.said(&["record", "a", "mine", "--stop"]);
    let metrics = running.said(&["metrics"]);
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    eventually("metrics were taken", || {
        let metrics = running.said(&["metrics"]);
        metrics.contains("isotherm_group_up{group=\"a\"} 1") && metrics.contains("isotherm_memory_bytes{group=\"a\"")
    });

    let place = running.end();
    let marks = |path: &PathBuf| {
        let recording = isotherm_record::Recording::open(path).unwrap();
        assert_eq!(recording.ending(), isotherm_record::Ending::Whole);
        recording.marks().map(|mark| mark.unwrap().text.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(marks(&recorded), ["recorded"]);
    assert_eq!(marks(&place.history("a")[0]), ["deployed", "recorded"]);
}

#[test]
fn a_right_configuration_changes_what_differs_and_a_wrong_one_nothing() {
    let running = Running::new("");
    let began = |running: &Running| running.get("/v1/groups/a/snapshot")["time_ns"].as_u64().unwrap();
    let before = began(&running);
    let more = format!("  - name: b\n    select: {{pid: [{}]}}\n", running.target.0.id());
    let write = |text: &str| std::fs::write(running.place.path("isotherm.yaml"), text).unwrap();
    write(&config(&running.place, &running.target, &more));
    signal(&running.daemon.0, Signal::HUP);
    eventually("the other group is there", || running.said(&["groups"]) == "a\nb\n");
    assert!(began(&running) >= before, "the first group goes on");

    write(&config(&running.place, &running.target, "    survay: off\n"));
    let refused = running.ctl(&["reload"]);
    assert_eq!(refused.status, 1);
    assert!(
        refused.err.contains("isotherm.yaml:7:5: there is no field \"survay\"; did you mean survey?"),
        "{refused:?}"
    );
    signal(&running.daemon.0, Signal::HUP);
    eventually("the refusal is logged twice", || running.place.text("log").matches("survay").count() == 2);
    assert_eq!(running.said(&["groups"]), "a\nb\n");
    let checked = running.place.run(&["daemon", "--config", "isotherm.yaml", "--check"]);
    assert!(checked.status == 1 && checked.err.starts_with("isotherm.yaml:7:5: "), "{checked:?}");

    write(&config(&running.place, &running.target, ""));
    running.said(&["reload"]);
    assert_eq!(running.said(&["groups"]), "a\n");
    let checked = running.place.run(&["daemon", "--config", "isotherm.yaml", "--check"]);
    assert_eq!(checked.out, "isotherm.yaml: right, with 1 group\n");
    running.end();
}

#[test]
fn groups_are_made_changed_paused_and_deleted_by_requests() {
    let running = Running::new("");
    let pid = running.target.0.id();
    std::fs::write(running.place.path("g.yaml"), format!("name: g\nselect: {{pid: [{pid}]}}\n")).unwrap();
    running.said(&["add", "g.yaml"]);
    let again = running.ctl(&["add", "g.yaml"]);
    assert!(again.status == 1 && again.err.contains("there is a group \"g\" already"), "{again:?}");
    running.said(&["pause", "g"]);
    assert_eq!(running.get("/v1/groups/g")["state"], "paused");
    let (status, detail) = running.refused("PUT", "/v1/groups/g/attributes", json!({ "sample": "10ms" }));
    assert!(status == 409 && detail.contains("resume it"), "{detail}");
    running.said(&["resume", "g"]);
    assert_eq!(running.get("/v1/groups/g")["state"], "watching");
    running.said(&["set", "g", "--sample", "10ms", "--aggr", "200ms", "--regions", "10:200"]);
    eventually("the attributes are in force", || {
        let attributes = &running.get("/v1/groups/g")["attributes"];
        attributes["sampling_ns"] == 10_000_000 && attributes["max_regions"] == 200
    });
    let (status, detail) = running.refused("PUT", "/v1/groups/g/attributes", json!({ "sample": "1s" }));
    assert!(status == 422 && !detail.is_empty(), "{detail}");
    let put = json!({ "schemes": [{ "name": "put", "action": "stat" }] });
    running.client.ask("PUT", "/v1/groups/g/schemes", Some(put.to_string())).unwrap();
    eventually("the scheme is in force", || running.get("/v1/groups/g/schemes")[0]["name"] == "put");
    assert_eq!(running.get("/v1/groups/g")["settings"]["schemes"], put["schemes"]);
    std::fs::write(running.place.path("lines"), "4K max 0% 0% 10s max stat\n").unwrap();
    running.said(&["set", "g", "--schemes", "lines"]);
    eventually("the schemes of the lines are in force", || running.get("/v1/groups/g/schemes")[0]["name"] != "put");
    assert!(running.get("/v1/groups/g")["settings"]["schemes"].as_str().unwrap().contains("4K max"));

    // Schemes only count, until the group may act.
    let scheme = "schemes: [{name: cold, access_rate: 0%, action: stat}]\n";
    std::fs::write(running.place.path("g.yaml"), format!("name: g\nselect: {{pid: [{pid}]}}\n{scheme}")).unwrap();
    running.said(&["change", "g.yaml"]);
    eventually("the scheme was applied", || running.get("/v1/groups/g/schemes")[0]["applications"].as_u64() > Some(0));
    let acting = json!({ "schemes": [{ "name": "p", "age": "10s..", "action": "pageout" }] });
    let (status, detail) = running.refused("PUT", "/v1/groups/g/schemes", acting);
    assert!(status == 422 && detail.contains("add act: true"), "{detail}");
    running.said(&["delete", "g"]);
    assert_eq!(running.said(&["groups"]), "a\n");
    running.end();
}

#[test]
fn groups_share_a_run_and_each_sees_its_own_processes() {
    let place = Place::new();
    let other = target(&place);
    let scheme = "schemes: [{name: all, action: stat}]";
    let one = |name: &str, pids: &str| format!("  - {{name: {name}, select: {{pid: [{pids}]}}, {scheme}}}\n");
    let running = Running::with(|target| {
        one("b", &other.0.id().to_string()) + &one("both", &format!("{}, {target}", other.0.id()))
    });
    let resident = |group: &str| running.get(&format!("/v1/groups/{group}"))["memory"]["resident"].as_u64();
    eventually("all were surveyed", || ["b", "both"].iter().all(|group| resident(group) > Some(64 << 20)));
    // Programs that have just begun grow a little.
    eventually("both groups together are the third", || {
        let sum = resident("a").unwrap() + resident("b").unwrap();
        // What both map of the program counts once.
        resident("both").is_some_and(|both| both < sum - (2 << 20) && both > sum - (32 << 20))
    });
    let metric = "isotherm_memory_bytes{group=\"both\",state=\"shared\"} ";
    let shared = |line: &str| line.strip_prefix(metric)?.parse::<f64>().ok();
    eventually("metrics tell what is shared", || {
        running.said(&["metrics"]).lines().find_map(shared).is_some_and(|bytes| bytes > 2e6)
    });
    let pids = |value: &Value| {
        let targets = value.as_array().unwrap().iter();
        targets.map(|target| target["pid"].as_u64().unwrap() as u32).collect::<BTreeSet<_>>()
    };
    let expected = [("a", vec![running.target.0.id()]), ("b", vec![other.0.id()])];
    for (group, expected) in expected.into_iter().chain([("both", vec![running.target.0.id(), other.0.id()])]) {
        let expected = BTreeSet::from_iter(expected);
        assert_eq!(pids(&running.get(&format!("/v1/groups/{group}/targets"))), expected, "{group}");
        assert_eq!(pids(&running.get(&format!("/v1/groups/{group}/snapshot"))["targets"]), expected, "{group}");
    }
    let applied = |group: &str| running.get(&format!("/v1/groups/{group}/schemes"))[0].clone();
    eventually("the schemes were applied", || {
        ["b", "both"].iter().all(|of| applied(of)["tried_bytes"].as_u64() > Some(0))
    });
    let by_application = |group: &str| {
        let scheme = applied(group);
        scheme["tried_bytes"].as_f64().unwrap() / scheme["applications"].as_f64().unwrap()
    };
    // The first application may have had one process only.
    eventually("each scheme is for the processes of its group", || by_application("b") < by_application("both") * 0.7);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.daemon.0.id())).unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    assert_eq!(names.filter(|name| name == "monitor\n").count(), 1);
    drop(other);
    eventually("the group of the process that has ended is over", || running.get("/v1/groups/b")["state"] == "ended");
    assert_eq!(running.get("/v1/groups/both")["state"], "watching");
    running.end();
}

#[test]
fn each_large_cgroup_is_a_group_too() {
    let running = Running::new("    each_cgroup_above: 64M\n");
    let targets = running.get("/v1/groups/a/targets");
    let cgroup = targets[0]["cgroup"].as_str().unwrap_or("/").to_owned();
    if cgroup == "/" {
        or_skip!(Err::<(), _>("the tests are in no cgroup of their own"));
    }
    let groups = || running.get("/v1/groups").as_array().unwrap().clone();
    eventually("the cgroup is a group", || groups().len() == 2);
    let made = groups().into_iter().find(|group| group["name"] != "a").unwrap();
    assert_eq!(made["settings"]["select"], json!({ "cgroup": [cgroup] }));
    let name = made["name"].as_str().unwrap().to_owned();
    assert!(cgroup.ends_with(&name), "{name} of {cgroup}");
    let path = format!("/v1/groups/{}/targets", encoded(&name));
    eventually("its processes are those of the cgroup", || {
        running.get(&path).as_array().unwrap().iter().any(|target| target["pid"] == running.target.0.id())
    });
    let written = running.place.text("isotherm.yaml").replace("    each_cgroup_above: 64M\n", "");
    std::fs::write(running.place.path("isotherm.yaml"), written).unwrap();
    running.said(&["reload"]);
    eventually("nobody asks for the group any more", || groups().len() == 1);
    running.end();
}

#[test]
fn each_answer_is_what_the_description_of_the_interface_says() {
    let scheme = "    schemes: [{name: cold, access_rate: 0%, action: stat}]\n";
    let running = Running::new(scheme);
    eventually("the scheme was applied", || running.get("/v1/groups/a/schemes")[0]["applications"].as_u64() > Some(0));
    let document = running.get("/v1/openapi.json");
    let mut seen = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(get) = methods.get("get") else { continue };
        let content = get["responses"]["200"]["content"].as_object().unwrap();
        let Some(mut schema) = content.get("application/json").and_then(|media| media.get("schema")).cloned() else {
            continue;
        };
        schema["components"] = document["components"].clone();
        let answer = running.get(&path.replace("{group}", &encoded("a")));
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let errors: Vec<String> = validator.iter_errors(&answer).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{path}: {errors:?}");
        seen.insert(path.clone());
    }
    assert!(seen.len() >= 7, "{seen:?}");
    running.end();
}

#[test]
fn a_group_can_be_recorded_without_a_daemon() {
    let place = Place::new();
    let target = target(&place);
    let text = format!("name: g\nselect: {{pid: [{}]}}\nschemes: [{{name: all, action: stat}}]\n", target.0.id());
    std::fs::write(place.path("g.yaml"), &text).unwrap();
    let record = |more: &[&str]| place.run(&[&["record", "--config", "g.yaml", "--duration", "1s"], more].concat());
    let recorded = record(&[]);
    assert_eq!(recorded.status, 0, "{recorded:?}");
    let report = place.run(&["report", "schemes", "--format", "json"]);
    assert!(report.status == 0 && report.out.contains("\"all\""), "{report:?}");
    assert_eq!(record(&["--pid", "1"]).status, 2, "the file says what is watched");
    std::fs::write(place.path("g.yaml"), text.replace("action: stat", "action: pageout")).unwrap();
    let refused = record(&[]);
    assert!(refused.status == 1 && refused.err.contains("add act: true"), "{refused:?}");
}

#[test]
fn others_may_read_if_the_socket_lets_them_and_change_nothing() {
    if !is_root() {
        or_skip!(Err::<(), _>("only root can be another user"));
    }
    let running = Running::new("");
    let as_nobody =
        |arguments: &[&str]| running.place.run_as_nobody(&[&["ctl", "--socket", "api.sock"], arguments].concat());
    let ran = or_skip!(as_nobody(&["status"]));
    assert!(ran.status == 1 && ran.err.contains("no daemon answers"), "the socket is closed to others: {ran:?}");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(running.place.path("api.sock"), open).unwrap();
    assert!(as_nobody(&["status"]).unwrap().out.contains("watching"));
    let ran = as_nobody(&["mark", "a", "x"]).unwrap();
    assert!(ran.status == 1 && ran.err.contains("may change something"), "{ran:?}");
    running.end();
}

#[test]
fn systemd_is_told_that_the_daemon_is_ready_reloads_lives_and_ends() {
    let place = Place::new();
    let target = target(&place);
    std::fs::write(place.path("isotherm.yaml"), config(&place, &target, "")).unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let heard = |what: &str| {
        let mut bytes = [0; 512];
        // What comes before may be another sign of life.
        loop {
            let length = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.lines().any(|line| line == what) {
                return text;
            }
        }
    };
    // systemd names the process that it watches.
    let script = "export WATCHDOG_PID=$$; exec \"$0\" daemon --config \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(place.isotherm(&[]).get_program()).arg(place.path("isotherm.yaml"));
    command.env("NOTIFY_SOCKET", place.path("notify")).env("WATCHDOG_USEC", "2000000");
    let mut daemon = Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    heard("READY=1");
    heard("WATCHDOG=1");
    signal(&daemon.0, Signal::HUP);
    // It has the time, which notify-reload needs.
    assert!(heard("RELOADING=1").contains("MONOTONIC_USEC="));
    heard("READY=1");
    heard("WATCHDOG=1");
    signal(&daemon.0, Signal::TERM);
    heard("STOPPING=1");
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_daemon_and_a_missing_one_are_told_apart() {
    let running = Running::new("");
    let second = running.place.run(&["daemon", "--config", "isotherm.yaml"]);
    assert!(second.status == 1 && second.err.contains("a daemon listens there"), "{second:?}");
    let place = running.end();
    let ran = place.run(&["ctl", "--socket", "api.sock", "status"]);
    assert!(ran.status == 1 && ran.err.contains("no daemon answers at api.sock"), "{ran:?}");
}

#[test]
fn what_a_killed_daemon_has_kept_can_be_read_and_the_next_one_goes_on() {
    let mut running = Running::new("");
    running.said(&["mark", "a", "before"]);
    let pid = running.target.0.id();
    for name in ["made", "resting"] {
        std::fs::write(running.place.path("g.yaml"), format!("name: {name}\nselect: {{pid: [{pid}]}}\n")).unwrap();
        running.said(&["add", "g.yaml"]);
    }
    running.said(&["pause", "resting"]);
    let has = |running: &Running, mark: &str| {
        let report = running.ctl(&["report", "a", "wss", "--json"]);
        report.status == 0 && report.out.contains(mark)
    };
    eventually("the mark is kept", || has(&running, "before"));
    running.daemon.0.kill().unwrap();
    running.daemon.0.wait().unwrap();
    let mut command = running.place.isotherm(&["daemon", "--config", "isotherm.yaml"]);
    running.daemon = Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("the next daemon watches", || running.ctl(&["status"]).out.contains("in memory"));
    assert_eq!(running.said(&["groups"]), "a\nmade\nresting\n", "{}", running.place.text("log"));
    let state = |group: &str| running.get(&format!("/v1/groups/{group}"))["state"].clone();
    assert_eq!((state("made"), state("resting")), ("watching".into(), "paused".into()));
    running.said(&["mark", "a", "after"]);
    eventually("both are kept", || has(&running, "before") && has(&running, "after"));
    running.end();
}

#[test]
fn metrics_can_be_had_by_tcp_and_in_a_file_and_nothing_else_by_tcp() {
    let place = Place::new();
    let textfile = place.path("isotherm.prom");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let more = format!("metrics: {{listen: \"{free}\", textfile: {}}}\n", textfile.display());
    let running = Running::new(&more);
    let ask = |path: &str| {
        let output = Command::new("curl").args(["-s", "-i", &format!("http://{free}{path}")]).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).map_err(|error| error.to_string())
    };
    let metrics = or_skip!(ask("/metrics"));
    assert!(metrics.contains("application/openmetrics-text") && metrics.contains("isotherm_build_info"), "{metrics}");
    assert!(ask("/v1/groups").unwrap().starts_with("HTTP/1.1 404"));
    eventually("the file is there", || {
        std::fs::read_to_string(&textfile).is_ok_and(|text| text.contains("isotherm_group_up{group=\"a\"} 1"))
    });
    running.end();
}

#[test]
fn systemd_can_hold_the_sockets() {
    let place = Place::new();
    let target = target(&place);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let more = format!("metrics: {{listen: \"{free}\"}}\n");
    std::fs::write(place.path("isotherm.yaml"), config(&place, &target, &more)).unwrap();
    let socket = place.path("systemd.sock");
    let mut command = Command::new("systemd-socket-activate");
    command.arg("--listen").arg(&socket).args(["--listen", &free]).arg(common::ISOTHERM).arg("daemon");
    command.arg("--config").arg(place.path("isotherm.yaml")).stdout(Stdio::null());
    let log = std::fs::File::create(place.path("log")).unwrap();
    let started = command.stderr(log).spawn().map_err(|error| format!("systemd-socket-activate: {error}"));
    let mut daemon = Kept(or_skip!(started));
    eventually("systemd holds the socket", || socket.exists());
    // The first request starts the daemon.
    let ctl = |arguments: &[&str]| place.run(&[&["ctl", "--socket", "systemd.sock"], arguments].concat());
    eventually("the request is answered", || ctl(&["groups"]).out == "a\n");
    assert!(!place.path("api.sock").exists(), "the socket of the configuration is not used");
    assert!(place.text("log").contains("the control socket is that of systemd"), "{}", place.text("log"));
    let metrics = Command::new("curl").args(["-s", &format!("http://{free}/metrics")]).output();
    let metrics = or_skip!(metrics.map_err(|error| error.to_string())).stdout;
    assert!(String::from_utf8_lossy(&metrics).contains("isotherm_build_info"));
    signal(&daemon.0, Signal::TERM);
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    assert!(socket.exists(), "the socket is systemd's");

    // What is no socket that listens is refused.
    let script = "exec 3< /dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" daemon --config \"$1\"";
    let mut command = Command::new("sh");
    let refused = command.args(["-c", script, common::ISOTHERM]).arg(place.path("isotherm.yaml")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("descriptor 3 of systemd is neither"), "{said}");
}
