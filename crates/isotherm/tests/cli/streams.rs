//! Every command with a standard output or error that is full, a pipe without a reader, or closed. Nothing panics.
//! Output that cannot be written is a failure. A reader that has gone is not a failure.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::common::{ISOTHERM, Place, Ran, bpf_works};

/// A call, and its exit status.
type Call = (Vec<&'static str>, i32);

/// Calls that write to standard output, and those that do not. Makes the files that they read. PID stands for this
/// process.
fn calls(place: &Place) -> (Vec<Call>, Vec<Call>) {
    place.make_two_recordings();
    fs::write(place.path("all.yaml"), "- {name: all, action: stat}\n").unwrap();
    fs::write(place.path("bad.yaml"), "- {name: bad, action: nothing}\n").unwrap();
    fs::write(place.path("bad.rec"), "this is no recording").unwrap();
    isotherm_soak::make_evaluation(&place.path("results")).unwrap();
    let mut printing = vec![
        ("--help", 0),
        ("--version", 0),
        ("help", 0),
        ("help record", 0),
        ("record --help", 0),
        ("completions bash", 0),
        ("completions zsh", 0),
        ("completions fish", 0),
        ("schema wss", 0),
        ("doctor", 0),
        ("doctor --format json", 0),
        ("workload --list", 0),
        ("workload stairs --announce --time 10ms", 0),
        ("workload stairs --flat-out --time 10ms", 0),
        ("scheme check all.yaml", 0),
        ("scheme try all.yaml known.rec", 0),
        ("scheme try all.yaml known.rec --format json", 0),
        ("report tune known.rec", 0),
        ("report tune known.rec --format json", 0),
        ("report html known.rec", 0),
        ("tune -q --probe refs --sample 50ms --aggr 200ms -- sleep 0.5", 0),
        ("tune -q --probe refs --sample 50ms --aggr 200ms --format json -- sleep 0.5", 0),
        ("report heatmap known.rec -f text", 0),
        ("report heatmap known.rec -f json", 0),
        ("report heatmap known.rec -f svg", 0),
        ("report wss known.rec -f text", 0),
        ("report wss known.rec -f json", 0),
        ("report regions known.rec -f text", 0),
        ("report regions known.rec -f json", 0),
        ("report summary known.rec -f text", 0),
        ("report summary known.rec -f json", 0),
        ("report overhead known.rec -f text", 0),
        ("report overhead known.rec -f json", 0),
        ("report temperature known.rec -f text", 0),
        ("report temperature known.rec -f json", 0),
        ("report idle-time known.rec -f text", 0),
        ("report idle-time known.rec -f json", 0),
        ("diff known.rec known.rec -f text", 0),
        ("diff known.rec known.rec -f json", 0),
        ("diff known.rec known.rec -f html", 0),
        ("eval report results", 0),
        ("eval report results -f json", 0),
        ("eval report results -f csv", 0),
        ("check known.rec", 0),
        ("check known.rec --format json", 0),
        ("check known.rec --save good.rec", 0),
        ("tier list", 0),
        ("tier list --format json", 0),
        ("tier try known.rec -f text", 0),
        ("tier try known.rec -f json", 0),
        ("fleet views", 0),
        ("fleet views idle", 0),
    ];
    let mut silent = vec![
        ("record --probe refs --sample 50ms --aggr 200ms -o out.rec -- sleep 0.5", 0),
        ("record -q --probe refs -o out.rec -- /bin/false", 1),
        ("record --probe refs -o out.rec -- no-such-command", 1),
        ("record --pid 4194304", 1),
        ("record", 2),
        ("record --aggr 0s -- true", 2),
        ("no-such-command", 2),
        ("convert known.damo out.rec", 0),
        ("convert bad.yaml out.rec", 1),
        ("convert known.rec out.csv", 0),
        ("convert known.rec out.xml", 2),
        ("cut known.rec --time 0s: -o part.rec", 0),
        ("cut known.rec --time 1h: -o part.rec", 1),
        ("merge known.rec other.rec -o both.rec", 0),
        ("merge known.rec known.rec -o both.rec", 1),
        ("diff known.rec bad.rec", 1),
        ("report schemes known.rec", 1),
        ("man pages", 0),
        ("report summary bad.rec", 1),
        ("report summary known.rec -o out.txt", 0),
        ("report summary known.rec --sort age", 2),
        ("scheme check bad.yaml", 1),
        ("scheme try bad.yaml known.rec", 1),
        ("run -s bad.yaml -- true", 1),
        ("top -- true", 2),
        ("workload ladder", 2),
        ("idle --pid 4194304", 1),
        ("mark text --recording known.rec", 1),
        ("tier config --rate lots", 2),
        ("tier run --rate lots --all", 2),
        ("tier try bad.yaml", 1),
        ("eval run -s ./bad.yaml", 1),
        ("eval pressure -s ./bad.yaml", 1),
        ("scheme tune all.yaml -r known.rec", 1),
        ("eval report known.rec", 1),
        ("eval report results --paper x", 2),
        ("fleet write --to fleet known.rec", 1),
        ("fleet compact none", 1),
        ("fleet check none", 1),
        ("fleet generate known.rec", 1),
    ];
    printing.push(("daemon --print-default", 0));
    // Without a daemon. With one, `tests/daemon.rs` calls them.
    for call in [
        "ctl status --socket none",
        "ctl groups --socket none",
        "ctl add all.yaml --socket none",
        "ctl change all.yaml --socket none",
        "ctl pause a --socket none",
        "ctl resume a --socket none",
        "ctl delete a --socket none",
        "ctl set a --regions 10:20 --socket none",
        "ctl snapshot a --socket none",
        "ctl stream a --socket none",
        "ctl record a x --socket none",
        "ctl report a wss --socket none",
        "ctl advice --socket none",
        "ctl mark a x --socket none",
        "ctl feed a m 1 --socket none",
        "ctl reload --socket none",
        "ctl health --socket none",
        "ctl metrics --socket none",
        "ctl openapi --socket none",
    ] {
        silent.push((call, 1));
    }
    if bpf_works().is_ok() {
        printing.push(("idle --probe bpf --pid PID -i 100ms -n 1", 0));
        printing.push(("idle -q --probe bpf --pid PID -i 100ms -n 1 --format json", 0));
        printing.push(("idle -q --probe bpf --pid PID -i 100ms -n 1 --format prometheus", 0));
        silent.push(("run -s all.yaml --probe bpf --record out.rec -- sleep 0.5", 0));
    }
    let split = |calls: Vec<(&'static str, i32)>| {
        calls.into_iter().map(|(call, status)| (call.split(' ').collect(), status)).collect()
    };
    (split(printing), split(silent))
}

/// A command that is new is called by the tests of this file, too.
#[test]
fn each_command_is_called() {
    let place = Place::new();
    let (printing, silent) = calls(&place);
    let calls: Vec<String> = printing.iter().chain(&silent).map(|(call, _)| call.join(" ") + " ").collect();
    for command in place.commands() {
        assert!(calls.iter().any(|call| call.starts_with(&format!("{command} "))), "{command}");
    }
}

/// What a standard stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Captured,
    Full,
    WithoutReader,
}

impl Stream {
    fn open(self) -> Stdio {
        match self {
            Self::Captured => Stdio::piped(),
            Self::Full => File::options().write(true).open("/dev/full").unwrap().into(),
            Self::WithoutReader => std::io::pipe().unwrap().1.into(),
        }
    }
}

fn with_pid(call: &[&str]) -> Vec<String> {
    let pid = std::process::id().to_string();
    call.iter().map(|word| if *word == "PID" { pid.clone() } else { (*word).to_owned() }).collect()
}

#[track_caller]
fn run(place: &Place, call: &[&str], output: Stream, errors: Stream) -> Ran {
    let mut command = place.isotherm(&[]);
    command.args(with_pid(call)).stdout(output.open()).stderr(errors.open());
    let ran = Ran::new(command.output().unwrap());
    assert!(!ran.err.contains("panicked"), "{call:?}: {ran:?}");
    ran
}

/// Runs a call by a shell that closes a stream, such as `>&-`.
fn run_closed(place: &Place, call: &[&str], closed: &str) -> Ran {
    let mut command = Command::new("sh");
    let script = format!("exec \"$0\" \"$@\" {closed}");
    command.args(["-c", &script, ISOTHERM]).args(with_pid(call)).stdin(Stdio::null());
    let ran = Ran::new(command.current_dir(place.dir.path()).output().unwrap());
    assert!(!ran.err.contains("panicked"), "{call:?}: {ran:?}");
    ran
}

#[test]
fn an_output_that_is_full_is_a_failure_that_names_it() {
    let place = Place::new();
    let (printing, silent) = calls(&place);
    // A picture does not end in a line feed, so that its end is written last.
    let picture = vec!["report", "wss", "known.rec", "-f", "png"];
    for call in printing.into_iter().map(|(call, _)| call).chain([picture]) {
        let ran = run(&place, &call, Stream::Full, Stream::Captured);
        assert_eq!(ran.status, 1, "{call:?}: {ran:?}");
        assert!(ran.err.contains("standard output: No space left on device"), "{call:?}: {ran:?}");
    }
    for (call, status) in silent {
        let ran = run(&place, &call, Stream::Full, Stream::Captured);
        assert_eq!(ran.status, status, "{call:?}: {ran:?}");
    }
}

#[test]
fn an_output_without_a_reader_is_no_failure() {
    let place = Place::new();
    let (printing, silent) = calls(&place);
    for (call, status) in printing.into_iter().chain(silent) {
        let ran = run(&place, &call, Stream::WithoutReader, Stream::Captured);
        assert_eq!(ran.status, status, "{call:?}: {ran:?}");
        assert!(!ran.err.contains("Broken pipe"), "{call:?}: {ran:?}");
    }
}

#[test]
fn errors_that_cannot_be_printed_do_not_change_the_exit_status() {
    let place = Place::new();
    let (printing, silent) = calls(&place);
    for (call, status) in &silent {
        for errors in [Stream::Full, Stream::WithoutReader] {
            let ran = run(&place, call, Stream::Captured, errors);
            assert_eq!(ran.status, *status, "{call:?} with errors {errors:?}: {}", ran.out);
        }
    }
    for (call, status) in printing {
        let ran = run(&place, &call, Stream::Captured, Stream::Full);
        assert_eq!(ran.status, status, "{call:?}");
        let ran = run(&place, &call, Stream::Full, Stream::Full);
        assert_eq!(ran.status, 1, "{call:?}");
    }
}

#[test]
fn closed_streams_are_no_failure_and_no_file_takes_their_place() {
    let place = Place::new();
    let (printing, silent) = calls(&place);
    for (call, status) in printing.into_iter().chain(silent) {
        for closed in [">&-", ">&- 2>&- <&-"] {
            let ran = run_closed(&place, &call, closed);
            assert_eq!(ran.status, status, "{call:?} with {closed}: {ran:?}");
        }
    }
    // The report is in the file, and nothing that was printed.
    let report = fs::read_to_string(place.path("out.txt")).unwrap();
    assert!(report.contains("pid 4711") && !report.contains("isotherm:"), "{report}");
}
