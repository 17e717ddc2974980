//! The commands into which faults are injected.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    /// The names of the files.
    pub(super) inputs: Vec<String>,
}

/// A call of isotherm.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its arguments. `PID` stands for the process ID of a target, `TARGET` for the call of one that ends by itself.
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
        let mut room =
            Self { directory, isotherm: isotherm.to_owned(), target: target.clone(), bpf: true, inputs: vec![] };
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
        room.bpf = by_bpf;
        room.inputs = room.names()?;
        Ok(room)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// isotherm with these arguments, in the directory, with its streams closed.
    fn call(&self, arguments: &[&str]) -> Command {
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

/// All commands: those that read files, and those that watch a target.
pub fn cases(bpf: bool) -> Vec<Case> {
    let mut cases = vec![];
    let mut add = |call: &str, output: Option<&'static str>, keeps: bool, live: bool| {
        let arguments = call.split(' ').map(str::to_owned).collect();
        let varies = live || call.starts_with("doctor");
        let slow = varies || ["png", "pdf"].iter().any(|format| call.contains(format));
        // A file of schemes that is wrong, and a recording without its end.
        let status = if call.contains("bad.yaml") { 1 } else { 3 * i32::from(call.starts_with("check cut.rec")) };
        cases.push(Case { arguments, status, output, keeps, live, varies, slow, terminal: call.starts_with("top") });
    };
    for call in [
        "--version",
        "help record",
        "completions bash",
        "doctor",
        "doctor --format json",
        "workload --list",
        "workload pattern.toml",
        "scheme check stat.yaml",
        "scheme check bad.yaml",
        "scheme try pageout.yaml known.rec",
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
    ] {
        add(call, None, false, false);
    }
    add("report heatmap known.rec -f png -o out.png", Some("out.png"), false, false);
    add("report overhead known.rec -f pdf -o out.pdf", Some("out.pdf"), false, false);
    add("report wss known.rec -f svg -o out.svg", Some("out.svg"), false, false);
    add("report html known.rec -f html -o out.html", Some("out.html"), false, false);
    add("diff known.rec known.rec -f html -o out.html", Some("out.html"), false, false);
    add("cut known.rec --time 0s:1h -o out.rec", Some("out.rec"), true, false);
    add("merge first.rec second.rec -o out.rec", Some("out.rec"), true, false);
    add("convert known.rec out.csv", Some("out.csv"), false, false);
    add("convert known.rec out.parquet", Some("out.parquet"), false, false);
    add("convert known.rec out.damo", Some("out.damo"), false, false);
    add("import damo known.damo -q -o out.rec", Some("out.rec"), true, false);
    add("recover cut.rec out.rec", Some("out.rec"), true, false);
    add("man pages", None, false, false);

    let fast = "--sample 10ms --aggr 50ms";
    let attached = format!("{fast} --duration 200ms --pid PID");
    let started = format!("{fast} -- TARGET");
    let mut live = |call: String, output, keeps| add(&call, output, keeps, true);
    live(format!("record -q --probe refs -o out.rec {attached}"), Some("out.rec"), true);
    live(format!("record -q --probe refs -o out.rec {started}"), Some("out.rec"), true);
    live(format!("tune -q --probe refs -o out.txt -f text {attached}"), Some("out.txt"), false);
    if bpf {
        live(format!("record --probe bpf -o out.rec {attached}"), Some("out.rec"), true);
        live(format!("record -q --probe bpf -o out.rec {started}"), Some("out.rec"), true);
        live(format!("run -q -s stat.yaml --probe bpf --record out.rec {attached}"), Some("out.rec"), true);
        live(format!("run -q -s pageout.yaml --probe bpf {attached}"), None, false);
        live(format!("run -q -s inside.yaml --probe bpf --record out.rec {attached}"), Some("out.rec"), true);
        live(format!("tune -q --probe bpf -f json {attached}"), None, false);
        live("idle -q --probe bpf --pid PID -i 100ms -n 1 -f json -o out.json".into(), Some("out.json"), false);
        live("idle --probe bpf --pid PID -i 100ms -n 2".into(), None, false);
        live(format!("top --probe bpf --log out.log {started}"), Some("out.log"), false);
        live(format!("top -s pageout.yaml --probe bpf {attached}"), None, false);
    }
    cases
}
