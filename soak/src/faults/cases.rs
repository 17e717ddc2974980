//! The commands into which faults are injected.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::recorder::Recorder;
use crate::target::{ROUNDS, Start};

/// A directory with the files that the commands read, and nothing else.
#[derive(Debug)]
pub struct Room {
    directory: tempfile::TempDir,
    /// The program isotherm.
    pub(super) isotherm: PathBuf,
    /// How a target is started.
    pub(super) target: Start,
    /// Whether the probe bpf works here.
    pub bpf: bool,
    /// What else works here that not every kernel has.
    able: Able,
    /// What makes a recording while other commands run. It is started by the first of them.
    recorder: OnceLock<Recorder>,
    /// The names of the files.
    pub(super) inputs: Vec<String>,
}

/// What works on a machine.
#[derive(Clone, Copy, Debug, Default)]
struct Able {
    stacks: bool,
    /// Whether there are tiers between which memory can move.
    tiers: bool,
}

/// A call of isotherm.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its arguments. `PID` stands for the process ID of a target, `NAME` for the name of its program, `TARGET` for the
    /// call of one that ends by itself, and `RECORDING` for a recording in progress.
    pub arguments: Vec<String>,
    /// Its exit status without a fault.
    pub status: i32,
    /// What it writes, if it writes a file.
    pub output: Option<&'static str>,
    /// Whether what the output replaces is kept.
    pub keeps: bool,
    /// Whether it watches a process.
    pub live: bool,
    /// Whether no two calls give the same output.
    pub varies: bool,
    /// Whether it takes so long that a short form tries few faults.
    pub slow: bool,
    /// Whether it is left to the long form (`./dev soak`), since another case is much like it.
    pub long: bool,
    /// Whether it runs on a terminal.
    pub terminal: bool,
}

const STAT: &str = "- {name: all, action: stat}\n";

/// Advice from outside, on memory of any temperature.
const PAGEOUT: &str = "- {name: cold, action: cold}\n- {name: out, action: pageout, apply_interval: 50ms}\n";

/// A system call that the target makes.
const INSIDE: &str = "- {name: inside, action: nohugepage, inside: true, apply_interval: 50ms}\n";

const PATTERN: &str = "about = 'a'\n[[area]]\nname = 'a'\nsize = '1 MiB'\n[[phase]]\ntime = '20ms'\n\
                       touch = [{ area = 'a', every = '2ms' }]\n";

impl Room {
    /// Makes the directory and its files.
    ///
    /// # Errors
    /// If it cannot be made, or a recording cannot.
    pub fn new(isotherm: &Path, target: &Start) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let (isotherm, target) = (isotherm.to_owned(), target.clone());
        let (able, recorder, inputs) = (Able::default(), OnceLock::new(), vec![]);
        let mut room = Self { directory, isotherm, target, bpf: true, able, recorder, inputs };
        for (name, text) in [
            ("stat.yaml", STAT),
            ("pageout.yaml", PAGEOUT),
            ("inside.yaml", INSIDE),
            ("bad.yaml", "- {name: bad, action: nothing}\n"),
            ("pattern.toml", PATTERN),
        ] {
            fs::write(room.path().join(name), text)?;
        }
        let watched = room.target.target()?;
        let pid = watched.pid().to_string();
        let recorded = |call: &str| room.call(&call.split(' ').collect::<Vec<_>>()).status();
        let probe = |probe: &str| format!("--probe {probe} --sample 20ms --aggr 100ms --duration 1s --pid {pid}");
        let by_bpf = recorded(&format!("run -q -s stat.yaml --record known.rec {}", probe("bpf")))?.success();
        if !by_bpf && !recorded(&format!("record -q -o known.rec {}", probe("refs")))?.success() {
            return Err(io::Error::other("no recording can be made"));
        }
        if !recorded("convert known.rec known.damo")?.success() {
            return Err(io::Error::other("the recording cannot be converted"));
        }
        let mut bytes = fs::read(room.path().join("known.rec"))?;
        bytes.truncate(bytes.len() - 100);
        fs::write(room.path().join("cut.rec"), bytes)?;
        for (part, name) in [("0s:500ms", "first.rec"), ("500ms:1h", "second.rec")] {
            if !recorded(&format!("cut known.rec --time {part} -o {name}"))?.success() {
                return Err(io::Error::other("the recording cannot be cut"));
            }
        }
        crate::make_evaluation(&room.path().join("results"))?;
        if !recorded("fleet generate fleet --hosts 1 --services 1")?.success() {
            return Err(io::Error::other("no dataset can be made"));
        }
        let inputs = room.names()?;
        let works = |call: &str| Ok::<_, io::Error>(recorded(call)?.success());
        let able = Able {
            stacks: works(&format!("record -q --stacks -o out.rec {}", probe("refs")))?,
            tiers: works("tier config")?,
        };
        (room.bpf, room.able, room.inputs) = (by_bpf, able, inputs);
        Ok(room)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The path of a recording in progress.
    pub(super) fn recording(&self) -> io::Result<String> {
        let recorder = match self.recorder.get() {
            Some(recorder) => recorder,
            None => {
                let started = Recorder::start(&self.isotherm, &self.target)?;
                self.recorder.get_or_init(|| started)
            }
        };
        Ok(recorder.recording().to_string_lossy().into_owned())
    }

    /// isotherm with these arguments, in the directory, with its streams closed.
    pub(super) fn call(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.isotherm);
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// Sets the directory, the environment and the streams of a call.
    pub(super) fn prepare(&self, command: &mut Command) {
        command.current_dir(self.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env_remove("SUDO_UID").env("TERM", "xterm-256color").env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
        command.env("RUST_BACKTRACE", "0");
        // Of the targets that isotherm starts.
        command.env(ROUNDS, "20");
    }

    /// The names of all files, sorted.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(self.path())?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }
}

/// The status of a call without a fault.
fn status(call: &str, able: Able) -> i32 {
    let fails = call.contains("bad.yaml")
        // There is no daemon.
        || call.starts_with("ctl")
        // There is such a directory.
        || call.starts_with("fleet generate")
        // Without tiers, there is nothing to move.
        || (["tier config", "tier run"].iter().any(|tier| call.starts_with(tier)) && !able.tiers);
    // A recording without its end has a status of its own.
    if call.starts_with("check cut.rec --format") { 3 } else { i32::from(fails) }
}

/// All commands: those that read files, and those that watch a target.
pub fn cases(room: &Room) -> Vec<Case> {
    let able = room.able;
    let mut cases = vec![];
    let mut add = |call: &str, output: Option<&'static str>, keeps: bool, live: bool, long: bool| {
        let arguments = call.split(' ').map(str::to_owned).collect();
        // The doctor tells times, the list of tiers how much memory is free.
        let varies = live || call.starts_with("doctor") || call.starts_with("tier list");
        let slow = varies || call.contains("png");
        let (status, terminal) = (status(call, able), call.starts_with("top"));
        cases.push(Case { arguments, status, output, keeps, live, varies, slow, long, terminal });
    };
    for call in [
        "--version",
        "help record",
        "completions bash",
        "schema wss",
        "doctor",
        "workload --list",
        "workload pattern.toml",
        "scheme check stat.yaml",
        "scheme check bad.yaml",
        "scheme try pageout.yaml known.rec",
        "scheme tune bad.yaml -r known.rec",
        "check known.rec",
        "check cut.rec --format json",
        "report heatmap known.rec -f text",
        "report wss known.rec -f text",
        "report regions known.rec -f json",
        "report summary known.rec -f text",
        "report overhead known.rec -f text",
        "report schemes known.rec -f text",
        "report idle-time known.rec -f text",
        "report temperature known.rec -f json",
        "report tune known.rec -f text",
        "diff known.rec known.rec -f text",
        "tier list",
        "tier config",
        "tier try known.rec -f text",
        "mark text --recording RECORDING",
        "eval run --suite ./bad.yaml",
        "eval pressure --suite ./bad.yaml",
        "eval report results",
        "daemon --print-default",
        "ctl status --socket none",
        "fleet generate fleet",
        "fleet write known.rec --to fleet",
        "fleet compact fleet --before 1970-01-01",
        "fleet check fleet",
        "fleet views idle",
    ] {
        add(call, None, false, false, false);
    }
    for call in [
        "scheme try pageout.yaml known.rec --format json",
        "report heatmap known.rec -f json",
        "report wss known.rec -f json",
        "report regions known.rec -f text",
        "report summary known.rec -f json",
        "report overhead known.rec -f json",
        "report schemes known.rec -f json",
        "report idle-time known.rec -f json",
        "report temperature known.rec -f text",
        "report tune known.rec -f json",
        "diff known.rec known.rec -f json",
        "eval report results -f json",
        "tier list --format json",
        "tier try known.rec -f json",
    ] {
        add(call, None, false, false, true);
    }
    let mut writes = |call: &str, output, keeps, long| add(call, Some(output), keeps, false, long);
    writes("report heatmap known.rec -f png -o out.png", "out.png", false, false);
    writes("report wss known.rec -f svg -o out.svg", "out.svg", false, false);
    writes("report html known.rec -f html -o out.html", "out.html", false, false);
    writes("diff known.rec known.rec -f html -o out.html", "out.html", false, false);
    writes("tier try known.rec -f html -o out.html", "out.html", false, true);
    writes("eval report results -f html -o out.html", "out.html", false, false);
    writes("cut known.rec --time 0s:1h -o out.rec", "out.rec", true, false);
    writes("merge first.rec second.rec -o out.rec", "out.rec", true, false);
    writes("convert known.rec out.csv", "out.csv", false, false);
    writes("convert known.rec out.parquet", "out.parquet", false, false);
    writes("convert known.rec out.damo", "out.damo", false, false);
    writes("convert known.rec out.damo.json", "out.damo.json", false, true);
    writes("convert known.rec out.json", "out.json", false, true);
    writes("convert known.rec out.rec", "out.rec", true, true);
    writes("convert known.damo out.rec -q", "out.rec", true, false);
    writes("check cut.rec --save out.rec", "out.rec", true, false);
    for kind in ["heatmap", "wss", "regions", "summary", "idle-time", "temperature", "overhead", "schemes"] {
        for (format, output) in [("png", "out.png"), ("svg", "out.svg")] {
            writes(&format!("report {kind} known.rec -f {format} -o {output}"), output, false, true);
        }
    }
    add("doctor --format json", None, false, false, true);
    add("man pages", None, false, false, false);
    watching(room, &mut |call, output, keeps, long| add(&call, output, keeps, true, long));
    cases
}

/// The commands that watch a target.
fn watching(room: &Room, live: &mut dyn FnMut(String, Option<&'static str>, bool, bool)) {
    let fast = "--sample 10ms --aggr 50ms";
    let attached = format!("{fast} --duration 200ms --pid PID");
    let started = format!("{fast} -- TARGET");
    let refs = "record -q --probe refs -o out.rec";
    // With the probe bpf, the short form has these with it.
    live(format!("{refs} {attached}"), Some("out.rec"), true, room.bpf);
    live(format!("{refs} {started}"), Some("out.rec"), true, false);
    live(format!("{refs} --children {attached}"), Some("out.rec"), true, true);
    live(format!("{refs} --stdin-marks {attached}"), Some("out.rec"), true, true);
    live(format!("{refs} {fast} --duration 200ms --name NAME"), Some("out.rec"), true, true);
    if room.able.stacks {
        live(format!("{refs} --stacks {started}"), Some("out.rec"), true, true);
    }
    live(format!("tune -q --probe refs -o out.txt -f text {attached}"), Some("out.txt"), false, room.bpf);
    live(format!("tier run --dry-run {attached}"), None, false, false);
    if room.bpf {
        live(format!("record --probe bpf -o out.rec {attached}"), Some("out.rec"), true, false);
        live(format!("record -q --probe bpf -o out.rec {started}"), Some("out.rec"), true, true);
        live(
            format!("run -q -s stat.yaml --probe bpf --record out.rec --record-needed {attached}"),
            Some("out.rec"),
            true,
            true,
        );
        live(format!("run -q -s pageout.yaml --probe bpf {attached}"), None, false, false);
        live(
            format!("run -q -s inside.yaml --probe bpf --record out.rec --record-needed {attached}"),
            Some("out.rec"),
            true,
            false,
        );
        live(format!("tune -q --probe bpf -f json {attached}"), None, false, false);
        let idle = "idle -q --probe bpf -i 100ms -n 1";
        live(format!("{idle} --pid PID -f json -o out.json"), Some("out.json"), false, false);
        live("idle --probe bpf --pid PID -i 100ms -n 2".into(), None, false, true);
        live(format!("{idle} --pid PID -f prometheus -o out.prom"), Some("out.prom"), false, true);
        live(format!("{idle} --name NAME -f json"), None, false, true);
        live(format!("top --probe bpf --log out.log {started}"), Some("out.log"), false, false);
        live(format!("top -s pageout.yaml --probe bpf {attached}"), None, false, false);
    }
}
