//! `isotherm run`. Its effect on memory is tested in the laboratory, where there is swap.

use std::process::{Child, Command, Stdio};

use isotherm_core::scheme::Report;
use isotherm_record::{Activity, Recording};
use isotherm_testing::or_skip;
use rustix::process::Signal;

use crate::common::{HOT_IN_COLD, ISOTHERM, Kept, Place, Ran, bpf_works, eventually, signal};

const MIB: u64 = 1 << 20;

/// A scheme that counts hot memory, every half a second.
const HOT: &str = "- {name: hot, access_rate: {min: 50%}, age: {min: 500ms}, action: stat, apply_interval: 500ms}\n";
/// A debug build on a busy machine samples and clears too rarely within the default budgets.
const BUDGET: [&str; 4] = ["--cpu-budget", "20%", "--target-budget", "20%"];
/// A scheme that sleeps as long as the machine has free memory.
const ASLEEP: &str = "- name: asleep\n  access_rate: 0%\n  action: stat\n  \
                      watermarks: {metric: free_memory, interval: 200ms, high: 0.2%, mid: 0.1%, low: 0%}\n";

fn place(schemes: &str) -> Place {
    let place = Place::new();
    std::fs::write(place.path("mine.yaml"), schemes).unwrap();
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
    place
}

/// The activities in the recording, about one per second. There is no recording before its first batch.
fn activities(place: &Place) -> Vec<Activity> {
    let path = place.path("acted.rec");
    if !path.exists() {
        return Vec::new();
    }
    Recording::open(&path).unwrap().activities().map(Result::unwrap).collect()
}

fn last_report(place: &Place) -> Report {
    activities(place).pop().unwrap().schemes.remove(0)
}

/// Whether the first scheme of the recording sleeps.
fn is_asleep(place: &Place) -> bool {
    activities(place).last().is_some_and(|a| !a.schemes[0].awake)
}

/// A run in progress. Its standard error goes to the file `err`.
struct Running<'a> {
    child: Kept,
    place: &'a Place,
}

impl<'a> Running<'a> {
    fn start(place: &'a Place, arguments: &[&str]) -> Self {
        let mut command = place.isotherm(&["run", "--schemes", "mine.yaml"]);
        let err = std::fs::File::create(place.path("err")).unwrap();
        command.args(BUDGET).args(arguments).stdout(Stdio::null()).stderr(err);
        Self { child: Kept(command.spawn().unwrap()), place }
    }

    fn child(&self) -> &Child {
        &self.child.0
    }

    /// The standard error of the run so far.
    fn err(&self) -> String {
        std::fs::read_to_string(self.place.path("err")).unwrap()
    }

    fn end(mut self) -> Ran {
        let status = self.child.0.wait().unwrap().code().unwrap_or(-1);
        Ran { status, out: String::new(), err: self.err() }
    }
}

#[test]
fn schemes_act_on_the_memory_that_they_select_and_the_recording_contains_it() {
    or_skip!(bpf_works());
    let place = place(HOT);
    let command = [ISOTHERM, "workload", "hot.toml", "--time", "10s"];
    let call = [&["run", "-s", "mine.yaml", "-r", "acted.rec", "--seed", "1"][..], &BUDGET, &["--"], &command].concat();
    let ran = place.run(&call);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.err.contains("hot (stat): ") && ran.err.contains("isotherm report schemes acted.rec"), "{}", ran.err);

    let activities = activities(&place);
    assert!(activities.len() >= 4, "one per second, and one at the end: {}", activities.len());
    let bytes = |a: &Activity| a.schemes[0].total.applied_bytes;
    assert!(activities.is_sorted_by(|a, b| a.time <= b.time && bytes(a) <= bytes(b)));
    // 16 of 128 MiB are hot. The program's other memory is small.
    let sizes = activities.iter().map(|a| a.schemes[0].last.regions.iter().map(|r| r.range.size()).sum::<u64>());
    assert!(sizes.clone().any(|bytes| (12 * MIB..=24 * MIB).contains(&bytes)), "{:?}", sizes.collect::<Vec<_>>());
    let (_, memory) = activities[activities.len() / 2].memory[0];
    assert!((100 * MIB..200 * MIB).contains(&memory.resident), "{memory:?}");
    assert!(activities[0].system.free > 0 && activities[0].system.free < activities[0].system.total);
}

/// Runs this script in a mount namespace of its own, where the directory `small` is a file system of 16 MiB. An error
/// is the reason to skip the test.
fn on_a_small_disk(place: &Place, script: &str) -> Result<Ran, String> {
    std::fs::create_dir_all(place.path("small")).unwrap();
    let small = "mount -t tmpfs -o size=16m none small";
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, ISOTHERM]).current_dir(place.dir.path());
        command.output()
    };
    match namespace(small) {
        Ok(output) if output.status.success() => {}
        failed => return Err(format!("no file system can be mounted in a namespace: {failed:?}")),
    }
    Ok(Ran::new(namespace(&format!("{small} && {script}")).unwrap()))
}

#[test]
fn a_full_disk_ends_the_recording_of_a_run_and_not_the_acting_unless_it_is_needed() {
    or_skip!(bpf_works());
    let place = place(HOT);
    let run = "\"$0\" run -s mine.yaml --cpu-budget 20% --intervals fixed -r small/a.rec";
    let workload = "-- \"$0\" workload hot.toml --time 8s";
    // The disk is full as soon as the recording has an activity.
    let full = "until \"$0\" report schemes small/a.rec >out 2>&1 || ! kill -0 $!; do sleep 0.1; done; \
                dd if=/dev/zero of=small/rest bs=4k 2>out; wait $!";
    let script = format!("{run} {workload} & {full}; status=$?; cp small/a.rec acted.rec; exit $status");
    let ran = or_skip!(on_a_small_disk(&place, &script));
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.err.contains("small/a.rec") && ran.err.contains("No space left on device"), "{}", ran.err);
    assert_eq!(ran.err.matches("the run goes on without it").count(), 1, "{}", ran.err);
    // What was recorded before is there, and the schemes have gone on.
    let recorded = last_report(&place);
    let summary = ran.err.lines().find(|line| line.contains("snapshots in ")).unwrap();
    assert!(summary.ends_with(" in 8 s") || summary.contains(" in 8."), "{summary}");
    assert!(ran.err.contains("hot (stat): ") && ran.err.contains("  not seen: "), "{}", ran.err);
    let until = activities(&place).last().unwrap().time;
    assert!(until.as_secs() < 8 && recorded.total.applications < 16, "{until:?}");

    let script = format!("{run} --record-needed {workload} & {full}");
    let ran = on_a_small_disk(&place, &script).unwrap();
    assert_eq!(ran.status, 1, "{}", ran.err);
    assert!(ran.err.contains("No space left on device"), "{}", ran.err);
}

#[test]
fn a_scheme_that_takes_memory_away_without_a_survey_is_warned_of() {
    or_skip!(bpf_works());
    // No memory is that old.
    let prcl = "- {name: prcl, access_rate: 0%, age: {min: 1h}, action: pageout}\n";
    let warned = |schemes: &str, how: &[&str]| {
        let ran = place(schemes).run(&[&["run", "-s", "mine.yaml"], how, &["--", "sleep", "0.5"]].concat());
        assert_eq!(ran.status, 0, "{}", ran.err);
        let told = ran.err.contains("without a survey, the scheme prcl acts on whole regions");
        assert_eq!(told, ran.err.contains("leave out --survey off"), "{}", ran.err);
        told
    };
    assert!(warned(prcl, &["--survey", "off"]));
    assert!(warned(prcl, &["--probe", "refs"]));
    assert!(!warned(prcl, &[]));
    assert!(!warned(HOT, &["--survey", "off"]), "it takes nothing away");
}

#[test]
fn the_exit_status_of_the_command_is_returned_and_quiet_prints_nothing() {
    or_skip!(bpf_works());
    let ran = place(HOT).run(&["run", "-s", "mine.yaml", "-q", "--", "sh", "-c", "sleep 0.5; exit 7"]);
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (7, "", ""));
}

#[test]
fn errors_of_schemes_are_reported_before_the_command_is_started() {
    or_skip!(bpf_works());
    let cases = [
        ("- {action: pageout, age: 5}", "mine.yaml:1:26: 5 has no unit"),
        ("- {action: mlock}", "add `inside: true`"),
        ("- {action: stat, quota: {goals: [{fed: {from: none, value: 1}}]}}", "no number can be read from none"),
        ("- {action: stat, watermarks: {metric: heat}}", "watermarks needs the field high"),
        ("", "mine.yaml"),
    ];
    for (schemes, why) in cases {
        let place = place(schemes);
        let ran = place.run(&["run", "-s", "mine.yaml", "--", "touch", "touched"]);
        assert_eq!(ran.status, 1, "{schemes}: {}", ran.err);
        assert!(ran.err.contains(why), "{schemes}: {}", ran.err);
        assert!(!place.path("touched").exists(), "{schemes}");
    }
    let place = place(HOT);
    for (arguments, why) in [
        (&["--physical", "--survey", "off"][..], "act on physical memory by surveys only; use --probe idle"),
        (
            &[],
            "there is nothing to watch; name processes with --pid, --name, --cgroup or the like, a command after --, \
             or all memory with --physical",
        ),
    ] {
        let ran = place.run(&[&["run", "-s", "mine.yaml"], arguments].concat());
        assert_eq!(ran.status, 2, "{}", ran.err);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
    let ran = place.run(&["run", "-s", "other.yaml", "--", "touch", "touched"]);
    assert!(ran.status == 1 && ran.err.contains("other.yaml: cannot be read"), "{}", ran.err);
}

#[test]
fn a_changed_scheme_file_is_read_again_and_an_error_in_it_changes_nothing() {
    or_skip!(bpf_works());
    let place = place(HOT);
    let workload = [ISOTHERM, "workload", "hot.toml"];
    let running = Running::start(&place, &[&["-r", "acted.rec", "--"][..], &workload].concat());
    let names = || {
        let last = if place.path("acted.rec").exists() { activities(&place).pop() } else { None };
        last.map(|a| a.schemes.iter().map(|s| s.name.to_string()).collect::<Vec<_>>()).unwrap_or_default()
    };
    eventually("the scheme is in force", || names() == ["hot"]);

    std::fs::write(place.path("mine.yaml"), HOT.replace("hot", "warm")).unwrap();
    eventually("the file's change is noticed", || names() == ["warm"]);
    std::fs::write(place.path("mine.yaml"), HOT.replace("stat", "melt")).unwrap();
    // A change is noticed after one or two seconds; SIGHUP makes isotherm read the file at once.
    signal(running.child(), Signal::HUP);
    eventually("the error is reported", || running.err().contains("there is no action \"melt\""));
    let count = activities(&place).len();
    eventually("two more seconds are recorded", || activities(&place).len() >= count + 2);
    assert_eq!(names(), ["warm"]);
    std::fs::write(place.path("other"), HOT.replace("hot", "third")).unwrap();
    std::fs::rename(place.path("other"), place.path("mine.yaml")).unwrap();
    signal(running.child(), Signal::HUP);
    eventually("the corrected file is in force", || names() == ["third"]);

    signal(running.child(), Signal::TERM);
    let ran = running.end();
    assert_eq!(ran.status, 128 + 15, "the signal ended the command: {}", ran.err);
    assert!(ran.err.contains("there is no action \"melt\"") && ran.err.contains("in force before stay"), "{}", ran.err);
    assert_eq!(ran.err.matches("there is no action").count(), 1, "the error is reported once: {}", ran.err);
}

#[test]
fn intervals_tune_themselves_until_a_scheme_compares_access_rates() {
    or_skip!(bpf_works());
    let cold = "- {name: cold, access_rate: 0%, age: {min: 5s}, action: stat}\n";
    let tunes = |place: &Place| {
        let call = [&["run", "-s", "mine.yaml", "-r", "acted.rec", "-d", "1s"][..], &BUDGET, &["--"]].concat();
        let ran = place.run(&[&call[..], &[ISOTHERM, "workload", "hot.toml"]].concat());
        assert!(place.path("acted.rec").exists(), "{}", ran.err);
        Recording::open(&place.path("acted.rec")).unwrap().header().intervals.clone().unwrap()
    };
    assert_eq!([cold, HOT].map(|schemes| tunes(&place(schemes))), ["auto", "fixed"]);

    let place = place(cold);
    let running = Running::start(&place, &["-r", "acted.rec", "--", ISOTHERM, "workload", "hot.toml"]);
    eventually("the scheme is in force", || !activities(&place).is_empty());
    std::fs::write(place.path("mine.yaml"), HOT).unwrap();
    signal(running.child(), Signal::HUP);
    eventually("the intervals stay", || running.err().contains("the intervals stay 5 ms and 100 ms from now on"));
    signal(running.child(), Signal::TERM);
    running.end();
}

#[test]
fn while_all_schemes_sleep_nothing_is_monitored_and_the_end_is_noticed() {
    or_skip!(bpf_works());
    let place = place(ASLEEP);
    let command = [ISOTHERM, "workload", "hot.toml", "--time", "3s"];
    let ran = place.run(&[&["run", "-s", "mine.yaml", "-r", "acted.rec", "--"][..], &command].concat());
    assert_eq!(ran.status, 0, "{}", ran.err);
    let snapshots = Recording::open(&place.path("acted.rec")).unwrap().snapshots().count();
    assert!((1..=3).contains(&snapshots), "{snapshots} snapshots");
    let report = last_report(&place);
    assert!(!report.awake && report.total.applications == 0, "{report:?}");

    // The run also ends after its duration, and at a signal.
    let limited =
        [&["run", "-s", "mine.yaml", "--duration", "1s", "--"][..], &[ISOTHERM, "workload", "hot.toml"]].concat();
    assert_eq!(place.run(&limited).status, 0);
    let workload = Kept(place.isotherm(&["workload", "hot.toml"]).spawn().unwrap());
    std::fs::remove_file(place.path("acted.rec")).unwrap();
    let running = Running::start(&place, &["-r", "acted.rec", "--pid", &workload.0.id().to_string()]);
    eventually("the scheme sleeps", || is_asleep(&place));
    signal(running.child(), Signal::INT);
    assert_eq!(running.end().status, 0);
}

#[test]
fn monitoring_continues_when_a_scheme_wakes() {
    or_skip!(bpf_works());
    let place = place(ASLEEP);
    let running = Running::start(&place, &["-r", "acted.rec", "--", ISOTHERM, "workload", "hot.toml"]);
    eventually("the scheme sleeps", || is_asleep(&place));
    std::fs::write(place.path("mine.yaml"), HOT).unwrap();
    let hot = |a: &Activity| &*a.schemes[0].name == "hot" && a.schemes[0].total.applied_bytes >= 8 * MIB;
    eventually("the other scheme acts", || activities(&place).last().is_some_and(hot));
    signal(running.child(), Signal::TERM);
    running.end();
}

/// What is neither a file nor ready to be read must not keep a run from its end.
#[test]
fn a_pipe_or_a_device_in_place_of_a_file_is_refused_and_ends_no_run() {
    or_skip!(bpf_works());
    let fed = "- {name: fed, action: stat, quota: {bytes: 1 MiB, period: 100ms, \
               goals: [{fed: {from: figure, value: 1}}]}}\n";
    let place = place(fed);
    for (figure, why) in [("/dev/zero", "it is a device"), ("pipe", "it is a pipe"), ("/", "it is a directory")] {
        if figure == "pipe" {
            assert!(std::process::Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
        }
        let _ = std::fs::remove_file(place.path("figure"));
        std::os::unix::fs::symlink(figure, place.path("figure")).unwrap();
        let ran = place.run(&["run", "-s", "mine.yaml", "--", "touch", "touched"]);
        assert!(ran.status == 1 && ran.err.contains(why) && ran.err.contains("figure"), "{}", ran.err);
    }
    let ran = place.run(&["run", "-s", "/dev/zero", "--", "touch", "touched"]);
    assert!(ran.status == 1 && ran.err.contains("/dev/zero: cannot be read: it is a device"), "{}", ran.err);
    let ran = place.run(&["run", "-s", "pipe", "--", "touch", "touched"]);
    assert!(ran.status == 1 && ran.err.contains("nothing came through the pipe"), "{}", ran.err);
    assert!(!place.path("touched").exists());

    std::fs::remove_file(place.path("figure")).unwrap();
    std::fs::write(place.path("figure"), "0.5").unwrap();
    let workload = [ISOTHERM, "workload", "hot.toml"];
    let running = Running::start(&place, &[&["-r", "acted.rec", "--"][..], &workload].concat());
    eventually("the goal is read", || activities(&place).last().is_some_and(|a| a.schemes[0].goal_score.is_some()));
    std::fs::rename(place.path("pipe"), place.path("figure")).unwrap();
    eventually("the goal is not known", || {
        activities(&place).last().is_some_and(|a| a.schemes[0].goal_score.is_none())
    });
    // The scheme file as well.
    std::fs::remove_file(place.path("mine.yaml")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(place.path("mine.yaml")).status().unwrap().success());
    signal(running.child(), Signal::HUP);
    signal(running.child(), Signal::TERM);
    assert_eq!(running.end().status, 128 + 15);
}
