//! Each path argument of each command as everything that a path can be. No command waits, panics or destroys what is
//! there, and each says what is wrong. `outputs.rs` and `run.rs` have what outputs and scheme files do in detail.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;
use std::time::{Duration, Instant};

use isotherm_testing::or_skip;
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::common::{self, Kept, Place, Ran, bpf_works};

const SCHEME: &str = "- {name: all, action: stat}\n";

const PATTERN: &str = r#"
about = "a"
[[area]]
name = "a"
size = "64 KiB"
[[phase]]
time = "5ms"
touch = [{ area = "a", every = "2ms" }]
"#;

const SUITE: &str = "name: mine\nworkloads:\n  - {name: a, command: echo done}\n";

/// A call that has ended by then does not wait for anything.
const LIMIT: Duration = Duration::from_secs(30);

/// Calls that read IN, with a file that is a right input.
fn readers() -> Vec<(Vec<&'static str>, &'static str)> {
    let mut calls = vec![
        ("report summary IN -f text", "known.rec"),
        ("report html IN -f html -o out", "known.rec"),
        ("report tune IN -f text", "known.rec"),
        ("diff IN known.rec -f text", "known.rec"),
        ("diff known.rec IN -f text", "known.rec"),
        ("check IN", "known.rec"),
        ("cut IN --time 0s: -o out", "known.rec"),
        ("merge IN other.rec -o out", "known.rec"),
        ("check IN --save out", "known.rec"),
        ("report temperature IN -f json", "known.rec"),
        ("tier try IN -f text", "known.rec"),
        ("convert IN out.csv", "known.rec"),
        ("convert IN out.damo", "known.rec"),
        ("convert IN out.rec -q", "known.damo"),
        ("scheme check IN", "all.yaml"),
        ("scheme try IN known.rec", "all.yaml"),
        ("scheme try all.yaml IN", "known.rec"),
        ("workload IN.toml", "pattern.toml"),
        ("daemon --check --config IN", "daemon.yaml"),
    ];
    if bpf_works().is_ok() {
        calls.push(("run -q -s IN --probe bpf --duration 100ms -- true", "all.yaml"));
        calls.push(("top -s IN --probe bpf -- true", "all.yaml"));
    }
    if common::has_baseline() {
        calls.push(("eval run -q -s ./IN --configs orig -n 1 -o out", "suite.yaml"));
    }
    calls.into_iter().map(|(call, input)| (call.split(' ').collect(), input)).collect()
}

/// Calls that write OUT.
fn writers() -> Vec<Vec<&'static str>> {
    let mut calls = vec![
        "report summary known.rec -f text -o OUT",
        "report heatmap known.rec -f svg -o OUT",
        "report html known.rec -f html -o OUT",
        "diff known.rec known.rec -f text -o OUT",
        "tier try known.rec -f svg -o OUT",
        "eval report results -f text -o OUT",
        "cut known.rec --time 0s: -o OUT",
        "merge known.rec other.rec -o OUT",
        "check known.rec --save OUT",
        "convert known.rec OUT.csv",
        "convert known.rec OUT.parquet",
        "convert known.rec OUT.rec",
        "convert known.damo OUT.rec -q",
        "record -q --probe refs --sample 20ms --aggr 100ms -o OUT -- sleep 0.3",
        "tune -q --probe refs --sample 20ms --aggr 100ms -f text -o OUT -- sleep 0.3",
        "tune -q --probe refs --sample 20ms --aggr 100ms --record OUT -- sleep 0.3",
    ];
    if bpf_works().is_ok() {
        calls.push("run -q -s all.yaml --probe bpf --record OUT -- sleep 0.3");
        calls.push("idle -q --probe bpf --pid PID -i 100ms -n 1 -f json -o OUT");
    }
    calls.into_iter().map(|call| call.split(' ').collect()).collect()
}

/// A command that is new and takes a path is called by the tests of this file, too.
#[test]
fn each_command_that_takes_a_path_is_called() {
    const PATHS: [&str; 7] = ["FILE", "REC", "OUT", "BAD", "GOOD", "BEFORE", "DIR"];
    let place = Place::new();
    let mut calls: Vec<String> =
        readers().into_iter().map(|(call, _)| call).chain(writers()).map(|c| c.join(" ")).collect();
    // It writes a directory, and has a test of its own.
    calls.push("man OUT".into());
    // It needs two memory nodes, and records as `run` does.
    calls.push("tier run --record FILE".into());
    // It reads as `scheme try` does, and writes a directory as `eval run` does.
    calls.push("scheme tune FILE -o DIR".into());
    // It makes a cgroup, and reads and writes as `eval run` does.
    calls.push("eval pressure -s FILE -o DIR".into());
    // They need a daemon, and read and write as the other commands do.
    calls.extend(["ctl add FILE", "ctl change FILE", "ctl set --schemes FILE", "ctl report -o FILE"].map(String::from));
    // It opens no file: the path names a recorder.
    calls.push("mark text --recording FILE".into());
    let commands = place.commands().into_iter().filter(|command| !command.starts_with("report "));
    for command in commands.chain(["report summary".to_owned()]) {
        let help = place.run(&[&command.split(' ').collect::<Vec<_>>()[..], &["--help"]].concat()).out;
        let takes_path = |name: &&str| help.contains(&format!("<{name}>")) || help.contains(&format!("[{name}]"));
        let is_called = calls.iter().any(|call| call.starts_with(&format!("{command} ")));
        let is_unable = match &*command {
            "run" | "idle" | "top" => bpf_works().is_err(),
            "eval run" => !common::has_baseline(),
            _ => false,
        };
        assert!(is_called || is_unable || !PATHS.iter().any(takes_path), "{command}");
    }
}

fn place() -> Place {
    let place = Place::new();
    place.make_two_recordings();
    fs::write(place.path("all.yaml"), SCHEME).unwrap();
    fs::write(place.path("pattern.toml"), PATTERN).unwrap();
    fs::write(place.path("suite.yaml"), SUITE).unwrap();
    fs::write(place.path("daemon.yaml"), "groups: [{name: a, select: {all: true}}]\n").unwrap();
    isotherm_soak::make_evaluation(&place.path("results")).unwrap();
    place
}

/// A call with these paths in the place of IN and OUT, which may be a part of a word.
fn with(call: &[&str], path: &str) -> Vec<String> {
    let pid = std::process::id().to_string();
    let word = |word: &&str| match *word {
        "PID" => pid.clone(),
        word => word.replace("IN.toml", &format!("{path}.toml")).replace("IN", path).replace("OUT", path),
    };
    call.iter().map(word).collect()
}

/// The last word of a call that is a path, as the command sees it.
fn path_of(call: &[String], path: &str) -> String {
    call.iter().find(|word| word.starts_with(path)).unwrap().clone()
}

/// Runs a call, which must end by itself without a panic.
#[track_caller]
fn run(place: &Place, call: &[String]) -> Ran {
    let words: Vec<&str> = call.iter().map(String::as_str).collect();
    let (out, err) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let mut command = place.isotherm(&words);
    command.stdout(Stdio::from(out.reopen().unwrap())).stderr(Stdio::from(err.reopen().unwrap()));
    let mut child = Kept(command.spawn().unwrap());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status.code().unwrap_or(-1);
        }
        assert!(begun.elapsed() < LIMIT, "{call:?} does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |file: &tempfile::NamedTempFile| String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
    let ran = Ran { status, out: text(&out), err: text(&err) };
    assert!(!ran.err.contains("panicked") && !ran.out.contains("panicked"), "{call:?}: {ran:?}");
    ran
}

/// What a path is: the kind of the file, its device and inode, and its content if it is a regular file.
fn what_is_there(place: &Place, name: &str) -> (fs::FileType, u64, u64, Option<Vec<u8>>) {
    let found = fs::symlink_metadata(place.path(name)).unwrap();
    let content = found.is_file().then(|| fs::read(place.path(name)).unwrap());
    (found.file_type(), found.dev(), found.ino(), content)
}

/// Whether a call refuses a path: it fails, names the path, and says why in one of these words.
#[track_caller]
fn assert_refused(call: &[String], ran: &Ran, path: &str, words: &[&str]) {
    // The screen needs a terminal, which it says before it reads anything.
    if call[0] == "top" {
        return assert_ne!(ran.status, 0, "{call:?}: {ran:?}");
    }
    let said = format!("{}{}", ran.err, ran.out);
    assert!(ran.status == 1 || ran.status == 2, "{call:?}: {ran:?}");
    assert!(said.contains(path) && words.iter().any(|word| said.contains(word)), "{call:?}: {ran:?}");
}

/// Makes the kinds of paths that are no right input, each with the words of which one says what it is.
fn make_wrong_inputs(place: &Place, ending: &str) -> Vec<(&'static str, &'static [&'static str])> {
    let name = |name: &str| place.path(&format!("{name}{ending}"));
    mkfifoat(CWD, name("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    fs::create_dir(name("directory")).unwrap();
    symlink("loop", place.path("loop")).unwrap();
    for (link, target) in [("null", "/dev/null"), ("zero", "/dev/zero"), ("loops", "loop"), ("dangling", "nowhere")] {
        symlink(target, name(link)).unwrap();
    }
    std::mem::forget(std::os::unix::net::UnixListener::bind(name("socket")).unwrap());
    vec![
        ("fifo", &["a pipe", "the pipe", "not a file", "not a regular file"]),
        ("directory", &["directory", "not a file"]),
        ("null", &["a device", "not a file", "not a regular file"]),
        ("zero", &["a device", "not a file", "not a regular file"]),
        ("socket", &["a socket", "not a file", "not a regular file"]),
        ("loops", &["Too many levels of symbolic links"]),
        ("dangling", &["No such file"]),
    ]
}

#[test]
fn no_input_that_is_no_file_is_waited_for_or_taken_for_an_empty_one() {
    for (call, _) in readers() {
        let place = place();
        let ending = if call.contains(&"IN.toml") { ".toml" } else { "" };
        let kinds = make_wrong_inputs(&place, ending);
        let names = place.names();
        for (name, words) in kinds {
            let call = with(&call, name);
            let there = format!("{name}{ending}");
            let before = what_is_there(&place, &there);
            let ran = run(&place, &call);
            assert_refused(&call, &ran, name, words);
            assert_eq!(what_is_there(&place, &there), before, "{call:?}");
            assert_eq!(place.names(), names, "{call:?}");
        }
    }
}

#[test]
fn an_input_behind_a_link_is_read_and_stays() {
    for (call, input) in readers().into_iter().filter(|(call, _)| call[0] != "top") {
        let place = place();
        let ending = if call.contains(&"IN.toml") { ".toml" } else { "" };
        symlink(input, place.path(&format!("link{ending}"))).unwrap();
        let before = what_is_there(&place, input);
        let call = with(&call, "link");
        let ran = run(&place, &call);
        assert_eq!(ran.status, 0, "{call:?}: {ran:?}");
        assert_eq!(what_is_there(&place, input), before, "{call:?}");
    }
}

#[test]
fn an_input_that_its_reader_may_not_open_is_told() {
    let place = place();
    for (call, input) in readers().into_iter().filter(|(call, _)| !["top", "run"].contains(&call[0])) {
        let ending = if call.contains(&"IN.toml") { ".toml" } else { "" };
        let name = format!("mine{ending}");
        fs::copy(place.path(input), place.path(&name)).unwrap();
        fs::set_permissions(place.path(&name), PermissionsExt::from_mode(0o000)).unwrap();
        // What else the command reads is for everybody.
        for other in ["known.rec", "all.yaml"] {
            fs::set_permissions(place.path(other), PermissionsExt::from_mode(0o644)).unwrap();
        }
        let call = with(&call, "mine");
        let names = place.names();
        let ran = or_skip!(place.run_as_nobody(&call.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_refused(&call, &ran, "mine", &["Permission denied"]);
        assert_eq!(place.names(), names, "{call:?}");
    }
}

/// The words with which an output is refused.
const NOT_AN_OUTPUT: [&str; 4] = ["it is a directory", "it is a socket", "Too many levels", "not a file"];

#[test]
fn no_output_that_is_no_file_is_replaced() {
    for call in writers() {
        let place = place();
        let ending = call.iter().find_map(|word| word.strip_prefix("OUT")).unwrap().to_owned();
        let name = |name: &str| format!("{name}{ending}");
        fs::create_dir(place.path(&name("directory"))).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(place.path(&name("socket"))).unwrap();
        symlink(name("loop"), place.path(&name("loop"))).unwrap();
        let names = place.names();
        for path in ["directory", "socket", "loop"] {
            let before = what_is_there(&place, &name(path));
            let call = with(&call, path);
            let ran = run(&place, &call);
            assert_refused(&call, &ran, &path_of(&call, path), &NOT_AN_OUTPUT);
            assert_eq!(what_is_there(&place, &name(path)), before, "{call:?}");
            assert_eq!(place.names(), names, "{call:?}");
        }
        // A link to a device: the device is written to, and the link stays. tune reads its recording, which a device
        // does not give back, and a table of Parquet has to be read from its end.
        symlink("/dev/null", place.path(&name("null"))).unwrap();
        let call = with(&call, "null");
        let ran = run(&place, &call);
        assert!(ran.status <= 2, "{call:?}: {ran:?}");
        let device = fs::metadata(place.path(&name("null"))).unwrap();
        assert!(device.file_type().is_char_device(), "{call:?}");
        assert!(fs::symlink_metadata(place.path(&name("null"))).unwrap().is_symlink(), "{call:?}");
        let left: Vec<_> = place.names().into_iter().filter(|name| name.contains("isotherm-")).collect();
        assert_eq!(left, [""; 0], "{call:?}");
    }
}

#[test]
fn an_output_where_its_writer_may_not_create_a_file_is_told() {
    let place = place();
    for other in ["known.rec", "other.rec", "all.yaml", "known.damo"] {
        fs::set_permissions(place.path(other), PermissionsExt::from_mode(0o644)).unwrap();
    }
    fs::create_dir(place.path("closed")).unwrap();
    fs::set_permissions(place.path("closed"), PermissionsExt::from_mode(0o555)).unwrap();
    for call in writers().into_iter().filter(|call| !["run", "idle"].contains(&call[0])) {
        let call = with(&call, "closed/out");
        let ran = or_skip!(place.run_as_nobody(&call.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_refused(&call, &ran, "closed/out", &["Permission denied"]);
        assert_eq!(fs::read_dir(place.path("closed")).unwrap().count(), 0, "{call:?}");
    }
}

#[test]
fn the_directory_of_the_manual_pages_is_no_file() {
    let place = place();
    for name in ["known.rec", "fifo", "null"] {
        match name {
            "fifo" => mkfifoat(CWD, place.path(name), Mode::RUSR | Mode::WUSR).unwrap(),
            "null" => symlink("/dev/null", place.path(name)).unwrap(),
            _ => {}
        }
        let before = what_is_there(&place, name);
        let call = ["man".to_owned(), name.to_owned()];
        let ran = run(&place, &call);
        assert_refused(&call, &ran, name, &["File exists", "Not a directory"]);
        assert_eq!(what_is_there(&place, name), before);
    }
}
