//! Limits of cgroups follow what is in use, and are given back: at the end, under pressure, and after a kill.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::survey::{MappingSums, PageSums, SurveySnapshot, TargetSurvey, TotalSums, WINDOWS};
use isotherm_core::{AddrRange, Figures, Mapping, TargetId};
use isotherm_lab::acting::{Acting, Cgroup};
use isotherm_lab::idle::{CgroupWorkload, MIB};
use isotherm_lab::{EMULATED, Running, Zram, eventually, isotherm, result_file, shell};
use isotherm_record::{
    Contents, Event, Header, Recorder, Recording, SurveyRecord, TargetInfo, TargetInfos, recording_at,
};

/// A scheme that limits. Its goals are not reached by what it takes: an emulated machine is slow.
const LIMIT: &str = "- {name: limit, action: limit, access_rate: 0%, age: {min: 3s}, quota: {goals: [{pressure: 50%}, \
                     {refaults: 80%}]}}\n";

/// On an emulated processor, idle page tracking does not see accesses by translations that the processor has kept.
const BPF: [&str; 2] = ["--probe", "bpf"];

/// A run with a scheme on a cgroup.
fn acting(name: &str, cgroup: &Cgroup, options: &[&str], scheme: &str) -> Acting {
    Acting::new(name, &[&["--cgroup", cgroup.0], options, &BPF].concat(), scheme)
}

/// Where a run notes what it has to give back.
const JOURNALS: &str = "/run/isotherm";

/// Waits until the limit is below so many MiB.
fn wait_below(cgroup: &Cgroup, mib: u64) {
    eventually(&format!("the limit is below {mib} MiB"), || cgroup.high().is_some_and(|high| high < mib * MIB));
}

/// Whether a run notes that it has to give something back.
fn is_noted() -> bool {
    let names = fs::read_dir(JOURNALS).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.iter().any(|name| name.starts_with("limits.") && !name.ends_with(".lock") && !name.ends_with(".part"))
}

/// A run that acts on nothing, and what it says at its start.
fn next_start() -> String {
    let scheme = "- {name: count, action: stat}\n";
    let mut next = Acting::new("next", &["--pid", "1", "--duration", "2s"], scheme);
    assert_eq!(next.run.wait(), 0, "{}", next.said());
    println!("{}", next.said());
    next.said()
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_limit_follows_what_is_in_use_and_is_given_back_at_the_end() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/limited");
    let workload = cgroup.workload(64, 16);
    let before = cgroup.current();
    let mut run = acting("limit", &cgroup, &[], &LIMIT.replace("action: limit", "action: limit, keep: true"));
    wait_below(&cgroup, 40);
    assert!(cgroup.current() < before / 2 && is_noted(), "{} of {before}", cgroup.current());
    let low = || cgroup.read("memory.low").trim().parse::<u64>().unwrap();
    eventually("what is in use is protected, and no more", || (16 * MIB..32 * MIB).contains(&low()));
    // What is in use has its place.
    assert!(cgroup.high() > Some(16 * MIB), "{:?}", cgroup.high());
    let said = run.end();
    assert_eq!((cgroup.high(), low()), (None, 0));
    assert!(said.contains("memory.low of /limited is 0 B again: it was "), "{said}");
    assert!(said.contains("memory.high of /limited is ") && said.contains(" now (before: max)"), "{said}");
    assert!(said.contains("memory.high of /limited is max again: it was "), "{said}");
    assert!(said.contains("limit (limit): ") && said.contains(" freed of ") && !said.contains("warning"), "{said}");
    assert!(!Path::new(JOURNALS).exists(), "nothing is left");
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_limit_is_raised_at_once_when_the_cgroup_waits_for_memory() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/growing");
    let workload = cgroup.workload(64, 16);
    let mut run = acting("growing", &cgroup, &[], &LIMIT.replace("50%", "0.1%"));
    wait_below(&cgroup, 40);
    // It grows by 64 MiB.
    let script = "text=$(yes | head -c 67108864); echo grown; sleep 1000; :";
    let mut grown = Running::start(&mut cgroup.command(script));
    eventually("the limit is what it was", || cgroup.high().is_none());
    grown.wait_for_line("grown");
    let said = run.end();
    assert!(said.contains("memory.high of /growing is max again: because of "), "{said}");
    assert!(cgroup.read("memory.events").contains("oom_kill 0"));
    cgroup.write("cgroup.kill", "1");
    drop(grown);
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_next_start_gives_back_what_a_killed_run_has_left() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/killed");
    let workload = cgroup.workload(64, 16);
    cgroup.write("memory.high", "500M");
    let before = Some(500 * MIB);
    let mut limited = 0;
    for nth in 0..2 {
        let run = acting(&format!("killed-{nth}"), &cgroup, &[], LIMIT);
        match nth {
            0 => eventually("the journal is written", is_noted),
            _ => eventually("the limit is let down", || cgroup.high() != before),
        }
        // It is killed when it is dropped.
        drop(run);
        let is_limited = cgroup.high() != before;
        limited += u32::from(is_limited);
        let said = next_start();
        assert_eq!(cgroup.high(), before, "{said}");
        let told = said.contains("memory.high of /killed is 500 MiB again: an isotherm that was killed");
        assert_eq!(told, is_limited, "{said}");
        assert!(!Path::new(JOURNALS).exists(), "nothing is left");
    }
    assert!(limited >= 1, "none was killed with a limit");
    workload.end();
}

/// The environment variable with the number of kills, for a long form of the test.
const KILLS: &str = "LAB_KILLS";

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn no_limit_is_left_behind_by_runs_that_are_killed_at_any_moment() {
    let kills: u64 = std::env::var(KILLS).map_or(3, |kills| kills.parse().unwrap());
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/killed-at-any-moment");
    let workload = cgroup.workload(64, 16);
    cgroup.write("memory.high", "500M");
    let before = Some(500 * MIB);
    let (mut limited, mut noted) = (0, 0);
    let scheme = LIMIT.replace("min: 3s", "min: 1s");
    for nth in 0..kills {
        let run = acting("killed-at-any-moment", &cgroup, &[], &scheme);
        // From its start until it has let the limit down several times, in no order.
        std::thread::sleep(Duration::from_millis(nth * 1_237 % 5_000));
        drop(run);
        let was_limited = cgroup.high() != before;
        limited += u32::from(was_limited);
        noted += u32::from(is_noted());
        if was_limited || is_noted() {
            let said = next_start();
            assert_eq!(cgroup.high(), before, "kill {nth}: {said}");
            assert!(!is_noted(), "kill {nth}: {said}");
        }
        assert!(cgroup.read("memory.events").contains("oom_kill 0"));
    }
    println!("{kills} kills: {limited} with a limit, {noted} with a journal");
    assert!(kills < 20 || u64::from(limited) > kills / 10, "{limited} of {kills} were killed with a limit");
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_limit_that_somebody_else_sets_is_left_to_them() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/owned");
    let workload = cgroup.workload(64, 16);
    let mut run = acting("owned", &cgroup, &[], LIMIT);
    wait_below(&cgroup, 40);
    cgroup.write("memory.high", "300M");
    eventually("it is told", || run.said().contains("memory.high of /owned is left at 300 MiB: somebody else"));
    run.end();
    assert_eq!(cgroup.high(), Some(300 * MIB));

    // Also if the run was killed before that.
    let killed = acting("owned-killed", &cgroup, &[], LIMIT);
    eventually("the limit is let down", || cgroup.high() < Some(290 * MIB));
    drop(killed);
    cgroup.write("memory.high", "200M");
    assert!(next_start().contains("memory.high of /owned is left at 200 MiB"));
    assert_eq!(cgroup.high(), Some(200 * MIB));
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_dry_run_sets_no_limit_and_says_which_it_would_set() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/dry-limit");
    let workload = cgroup.workload(64, 16);
    let mut run = acting("dry-limit", &cgroup, &["--dry-run", "--duration", "15s"], LIMIT);
    assert_eq!(run.run.wait(), 0);
    let said = run.said();
    println!("{said}");
    assert!(said.contains("memory.high of /dry-limit would be let down to "), "{said}");
    assert!(cgroup.high().is_none() && !Path::new(JOURNALS).exists());
    workload.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_cgroup_that_is_frozen_keeps_its_limit_and_one_that_vanishes_is_no_error() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/passing");
    let workload = cgroup.workload(64, 16);
    let mut run = acting("passing", &cgroup, &["--wait"], LIMIT);
    wait_below(&cgroup, 40);
    cgroup.write("cgroup.freeze", "1");
    eventually("it is frozen", || cgroup.read("cgroup.events").contains("frozen 1"));
    assert!(cgroup.high().is_some());
    cgroup.write("cgroup.freeze", "0");
    workload.end();
    let said = run.end();
    assert!(!said.contains("cannot be"), "{said}");
    assert!(!Path::new(JOURNALS).exists(), "nothing is left");
}

/// `isotherm tune --apply` on a cgroup.
struct Tuned {
    run: Running,
    err: PathBuf,
    began: Instant,
}

impl Tuned {
    /// Starts it. `name` names its files.
    fn new(cgroup: &Cgroup, more: &[&str], name: &str) -> Self {
        let err = result_file(&format!("tune-{name}.err"));
        let mut command = isotherm(&["tune", "--cgroup", cgroup.0, "--apply", "--duration", "85s", "--survey", "1s"]);
        command.args(more).args(BPF).args(EMULATED);
        command.stdout(Stdio::null()).stderr(fs::File::create(&err).unwrap());
        Self { run: Running::start(&mut command), err, began: Instant::now() }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// Waits until it knows the right size. That takes about as long as one wait may last.
    fn wait_for_size(&self) {
        eventually("it has watched for most of its time", || self.began.elapsed() > Duration::from_secs(70));
        eventually("the right size is known", || self.said().contains("95 % of the minutes of "));
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn tune_limits_a_cgroup_to_its_right_size_and_gives_back_what_there_was() {
    let _swap = Zram::of(256);
    let (cgroup, untouched) = (Cgroup::new("/sized"), Cgroup::new("/sized-dry"));
    let workloads = [&cgroup, &untouched].map(|cgroup| cgroup.workload(96, 16));
    let mut dry = Tuned::new(&untouched, &["--dry-run"], "dry");
    let mut tuned = Tuned::new(&cgroup, &[], "sized");
    tuned.wait_for_size();
    wait_below(&cgroup, 90);
    // The right size is what is in use, and a margin of 16 MiB.
    assert!(cgroup.high().is_none_or(|high| high >= 32 * MIB), "{:?}", cgroup.high());
    tuned.run.interrupt();
    assert_eq!(tuned.run.wait(), 0, "{}", tuned.said());
    println!("{}", tuned.said());
    assert_eq!(cgroup.high(), None);
    assert!(tuned.said().contains("memory.high of /sized is max") && !tuned.said().contains("cannot be"));

    assert_eq!(dry.run.wait(), 0, "{}", dry.said());
    println!("{}", dry.said());
    assert!(dry.said().contains("a dry run: memory.high of /sized-dry would be let down to "));
    assert_eq!(untouched.high(), None);
    assert!(!Path::new(JOURNALS).exists(), "nothing is left");
    workloads.into_iter().for_each(CgroupWorkload::end);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_daemon_limits_only_if_it_may_act_and_the_next_one_gives_back_what_a_killed_one_has_left() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/served");
    let workload = cgroup.workload(64, 16);
    let config = result_file("limit-daemon.yaml");
    let start = |act: &str, name: &str| {
        let text = format!(
            "cpu_budget: 100%\nsocket: /tmp/limit.sock\nhistory: {{directory: null}}\ngroups:\n  - name: served\n    \
             select: {{cgroup: [/served]}}\n    probe: bpf\n    {act}schemes:\n      {LIMIT}"
        );
        fs::write(&config, text).unwrap();
        let err = result_file(&format!("limit-daemon-{name}.err"));
        let mut command = isotherm(&["daemon", "--config", config.to_str().unwrap()]);
        (Running::start(command.stderr(fs::File::create(&err).unwrap())), err)
    };
    let (mut refused, err) = start("", "refused");
    assert_ne!(refused.wait(), 0);
    assert!(fs::read_to_string(err).unwrap().contains("add act: true to the group"));

    let (first, _) = start("act: true\n    ", "first");
    wait_below(&cgroup, 40);
    drop(first);
    assert!(cgroup.high().is_some());
    let (mut second, err) = start("act: true\n    ", "second");
    let said = || fs::read_to_string(&err).unwrap();
    eventually("it is told", || said().contains("memory.high of /served is max again: an isotherm that was killed"));
    second.interrupt();
    assert_eq!(second.wait(), 0);
    println!("{}", said());
    assert_eq!(cgroup.high(), None);
    assert!(!is_noted(), "nothing is left");
    workload.end();
}

/// Writes minutes of two hours in which the cgroup needed so many MiB to the history of a daemon that has begun one.
fn remember(history: &Path, cgroup: &Cgroup, mib: u64) {
    let begun = || fs::read_dir(history).ok()?.flatten().find_map(|entry| Recording::open(&entry.path()).ok());
    eventually("the history is begun", || begun().is_some());
    let header = begun().unwrap().header().clone();
    let header = Header { started_unix_ns: header.started_unix_ns - 3 * 3600 * 1_000_000_000, ..header };
    let path = history.join(format!("minutes-{:013}.rec", header.started_unix_ns / 1_000_000));
    let mappings: Arc<[Mapping]> = [Mapping::anonymous(AddrRange::new(1 << 30, 2 << 30).unwrap())].into();
    let id = TargetId::process(7, Duration::ZERO);
    let figures = Figures { present: mib * MIB, touched: mib * MIB, ..Figures::default() };
    let sums = PageSums { within: [mib * MIB; WINDOWS.len()], ..PageSums::of(figures) };
    let target = TargetSurvey {
        id,
        by_mapping: vec![MappingSums::new(0, &mappings, sums).unwrap()],
        mappings,
        by_block: std::iter::empty().collect(),
        by_node: Vec::new(),
    };
    let info = TargetInfo { cgroup: Some(cgroup.0.into()), ..TargetInfo::default() };
    let infos: TargetInfos = vec![(id, Arc::new(info))].into();
    let contents = Contents { surveys: true, ..Contents::default() };
    let mut recorder = Recorder::begin(recording_at(&path).create().unwrap(), &header, contents).unwrap();
    for nth in 0..120 {
        let minute = Duration::from_secs(60);
        let survey = SurveySnapshot {
            time: minute * nth,
            interval: if nth == 0 { Duration::ZERO } else { minute },
            total: Some(TotalSums { sums: target.total(), shared: 0 }),
            targets: vec![target.clone()],
            ..SurveySnapshot::default()
        };
        let infos = infos.clone();
        recorder.write_event(&Event::Survey(SurveyRecord { survey, infos, ..SurveyRecord::default() })).unwrap();
    }
    recorder.finish().unwrap();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_daemon_limits_a_group_to_its_right_size_and_does_nothing_before_that_is_known() {
    let _swap = Zram::of(256);
    let cgroup = Cgroup::new("/right");
    let workload = cgroup.workload(96, 16);
    let config = result_file("right-size.yaml");
    let state = std::env::temp_dir().join("right-size");
    let text = format!(
        "cpu_budget: 100%\nsocket: /tmp/right.sock\nhistory: {{directory: {}}}\ngroups:\n  - name: served\n    \
         select: {{cgroup: [/right]}}\n    probe: bpf\n    act: true\n    right_size: true\n    schemes:\n      \
         {LIMIT}",
        state.display()
    );
    fs::write(&config, text).unwrap();
    let err = result_file("right-size.err");
    let mut command = isotherm(&["daemon", "--config", config.to_str().unwrap()]);
    let mut daemon = Running::start(command.stderr(fs::File::create(&err).unwrap()));
    let said = || fs::read_to_string(&err).unwrap();
    // What is idle is not taken before the right size is known.
    let before = cgroup.current();
    eventually("it is told that too little is known", || said().contains("its right size is not known"));
    assert!(cgroup.high().is_none() && cgroup.current() > before / 4 * 3, "{} of {before}", cgroup.current());

    remember(&state.join("history/served"), &cgroup, 50);
    eventually("the right size is known", || said().contains("the right size of /right is "));
    assert!(said().contains("95 % of the minutes of ") && said().contains("needed at most 50 MiB"), "{}", said());
    // 50 MiB, page cache and the kernel, and a margin of 16 MiB.
    let said_size =
        said().lines().find_map(|line| Some(line.split("of /right is ").nth(1)?.split(" MiB").next()?.parse()));
    let size: u64 = said_size.unwrap().unwrap();
    assert!((66..80).contains(&size), "{size}");
    // A workload that stands still takes no time from the daemon, and all of it becomes idle.
    shell(&format!("kill -STOP {}", workload.pid()));
    eventually("memory leaves", || cgroup.current() < before / 8 * 7);
    eventually("the limit is the right size", || cgroup.high() == Some(size * MIB));
    shell(&format!("kill -CONT {}", workload.pid()));
    daemon.interrupt();
    assert_eq!(daemon.wait(), 0);
    println!("{}", said());
    assert_eq!(cgroup.high(), None);
    assert!(!is_noted(), "nothing is left");
    workload.end();
}
