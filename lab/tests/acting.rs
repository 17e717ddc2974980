//! `isotherm run` with settings that change the machine: swap, huge pages, frozen and stopped targets, goals.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_lab::{
    EMULATED, HOT_IN_COLD, Ran, Running, Workload, Zram, eventually, isotherm, result_file, run, shell, ticks,
};
use isotherm_record::{Activity, Recording};

const MIB: u64 = 1 << 20;

/// Intervals that are long enough for an emulated, busy machine to touch the hot area in each of them.
const LONG_INTERVALS: [&str; 4] = ["--sample", "30ms", "--aggr", "300ms"];

/// Something to do to a process.
type Operation = fn(u32);

/// Runs schemes on a process for `time`. Returns the result and the recorded activities.
fn act(name: &str, schemes: &str, pid: u32, time: &str) -> (Ran, Vec<Activity>) {
    act_with(&EMULATED, name, schemes, pid, time)
}

/// Like [`act`], with these options.
fn act_with(options: &[&str], name: &str, schemes: &str, pid: u32, time: &str) -> (Ran, Vec<Activity>) {
    let ran = run(acting(name, schemes, pid, time).args(options));
    assert_eq!(ran.status, 0, "{ran:?}");
    (ran, activities(name))
}

/// The command that runs schemes on a process for `time`, and records that.
fn acting(name: &str, schemes: &str, pid: u32, time: &str) -> Command {
    let file = result_file(&format!("{name}.yaml"));
    fs::write(&file, schemes).unwrap();
    let mut command = isotherm(&["run", "--pid", &pid.to_string(), "--duration", time, "--seed", "1"]);
    command.args(LONG_INTERVALS).arg("--schemes").arg(&file).arg("--record").arg(recording(name));
    command
}

fn recording(name: &str) -> PathBuf {
    result_file(&format!("{name}.rec"))
}

/// The activities that were recorded under this name.
fn activities(name: &str) -> Vec<Activity> {
    Recording::open(&recording(name)).unwrap().activities().map(Result::unwrap).collect()
}

/// The share of a range that is in memory, 0 to 1.
fn resident(pid: u32, range: AddrRange) -> f64 {
    const PRESENT: u64 = 1 << 63;
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let pages = range.size() / PAGE_SIZE;
    let mut entries = vec![0; pages as usize * 8];
    pagemap.read_exact_at(&mut entries, range.start() / PAGE_SIZE * 8).unwrap();
    let present = entries.as_chunks::<8>().0.iter().filter(|entry| u64::from_ne_bytes(**entry) & PRESENT != 0);
    present.count() as f64 / pages as f64
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

const PRCL: &str = "- {name: prcl, size: {min: 4K}, access_rate: 0%, age: {min: 2s}, action: pageout}\n";

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn proactive_reclamation_swaps_out_cold_memory_and_keeps_hot_memory() {
    let _swap = Zram::of(256);
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid();
    assert!(resident(pid, workload.area("cold above")) > 0.9);
    // A small quota: on a slow machine, a large one would act on snapshots that are seconds old.
    let schemes = PRCL.replace("}\n", ", quota: {bytes: 8M, period: 300ms}}\n");
    let mut run = Running::start(acting("prcl", &schemes, pid, "5m").args(EMULATED));
    for area in ["cold below", "cold above"] {
        eventually("cold memory is swapped out", || resident(pid, workload.area(area)) < 0.1);
    }
    run.interrupt();
    assert_eq!(run.wait(), 0);
    // Hot pages that the busy machine did not touch in time come back.
    eventually("hot memory is resident again", || resident(pid, workload.area("hot")) > 0.9);
    assert!(is_alive(pid));

    let of = |activity: &Activity| activity.memory[0].1;
    let activities = activities("prcl");
    let (first, last) = (of(&activities[0]), of(activities.last().unwrap()));
    assert!(last.swapped > 80 * MIB && last.resident + 80 * MIB < first.resident, "{first:?} {last:?}");
    let total = &activities.last().unwrap().schemes[0].total;
    assert!(total.applied_bytes >= 100 * MIB && total.time > Duration::ZERO, "{total:?}");
}

/// The memory of `late` is accessed again after a second, the rest never.
const LATE: &str = r#"
about = "late"
[[area]]
name = "idle"
size = "16 MiB"
[[area]]
name = "late"
size = "16 MiB"
[[phase]]
time = "1s"
[[phase]]
time = "1000s"
touch = [{ area = "late", every = "100ms" }]
"#;

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_that_was_accessed_since_the_last_survey_is_left_alone() {
    let _swap = Zram::of(256);
    let workload = Workload::start(LATE);
    let (pid, idle) = (workload.process.pid(), workload.area("idle"));
    shell(&format!("kill -STOP {pid}"));
    let (file, recording) = (result_file("late.yaml"), result_file("late.rec"));
    let scheme = |name: &str, age: &str| {
        let (start, end) = (workload.area(name).start(), workload.area(name).end());
        format!(
            "- name: {name}\n  access_rate: 0%\n  age: {{min: {age}}}\n  action: pageout\n  filters:\n    - allow: \
             {{address: [{start:#x}, {end:#x}]}}\n"
        )
    };
    let act_at = |age: &str| fs::write(&file, scheme("idle", age) + &scheme("late", age)).unwrap();
    act_at("1h");
    // No samples: only the surveys tell the schemes what is idle.
    let only_surveys = ["--survey", "12s", "--sample", "off", "--target-budget", "100%", "--probe", "idle"];
    let mut command = isotherm(&["run", "--pid", &pid.to_string(), "--duration", "5m"]);
    command.args(only_surveys).args(EMULATED).arg("--schemes").arg(&file).arg("--record").arg(&recording);
    let mut run = Running::start(&mut command);
    let surveys = || Recording::open(&recording).unwrap().surveys().map(|survey| survey.unwrap().survey.time);
    let has_two = || Recording::open(&recording).is_ok_and(|recording| recording.surveys().count() >= 2);
    eventually("a survey has found all of it idle", has_two);
    let before = ticks(pid);
    shell(&format!("kill -CONT {pid}"));
    eventually("memory is accessed", || ticks(pid) >= before + 5);
    act_at("2s");
    eventually("idle memory is swapped out", || resident(pid, idle) < 0.1);
    run.interrupt();
    assert_eq!(run.wait(), 0);
    let activities: Vec<Activity> = Recording::open(&recording).unwrap().activities().map(Result::unwrap).collect();
    let applied = |activity: &Activity, nth: usize| activity.schemes[nth].total.applied_bytes;
    let acted = activities.iter().find(|activity| applied(activity, 0) > 0).unwrap().time;
    assert!(surveys().nth(2).is_none_or(|next| acted < next), "this machine is too slow for the test");
    let last = activities.last().unwrap();
    assert!(applied(last, 0) >= 14 * MIB && applied(last, 1) <= MIB, "{:?}", last.schemes);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_stays_resident_when_swap_is_full() {
    let _swap = Zram::of(32);
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid();
    let (_, activities) = act("swap-full", PRCL, pid, "8s");
    let last = activities.last().unwrap();
    assert!(last.system.swap_free < 4 * MIB && last.system.swap_total <= 32 * MIB, "{:?}", last.system);
    assert!(last.memory[0].1.resident > 60 * MIB, "{:?}", last.memory);
    let before = ticks(pid);
    eventually("the target goes on", || ticks(pid) > before);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_quota_bounds_each_period_and_a_filter_keeps_memory() {
    let _swap = Zram::of(256);
    let workload = Workload::start(HOT_IN_COLD);
    let (pid, kept, acted_on) = (workload.process.pid(), workload.area("cold below"), workload.area("cold above"));
    // The last filter leaves the rest of the program out, which is cold as well and would use up the quota.
    let schemes = format!(
        "- name: prcl\n  access_rate: 0%\n  age: {{min: 1s}}\n  action: pageout\n  quota: {{bytes: 4M, period: 1s}}\n  \
         filters:\n    - reject: {{address: [{:#x}, {:#x}]}}\n    - allow: {{address: [{:#x}, {:#x}]}}\n",
        kept.start(),
        kept.end(),
        acted_on.start(),
        acted_on.end()
    );
    let (ran, activities) = act("quota", &schemes, pid, "8s");
    assert!(resident(pid, kept) > 0.99, "{ran:?}");
    let gone = 1.0 - resident(pid, acted_on);
    assert!((0.01..0.6).contains(&gone), "{gone:.2} of 64 MiB in at most 9 periods of 4 MiB");
    let scheme = &activities.last().unwrap().schemes[0];
    assert!(scheme.total.passed_bytes <= 9 * 4 * MIB && scheme.total.quota_exceeded > 0, "{scheme:?}");
    assert!(scheme.total.rejected_bytes > 0, "{scheme:?}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn hot_memory_gets_huge_pages_and_cold_memory_forbids_them() {
    let thp = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let before = fs::read_to_string(thp).unwrap();
    fs::write(thp, "madvise").unwrap();
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid();
    let schemes = "- {name: huge, access_rate: {min: 50%}, action: hugepage, apply_interval: 1s}\n\
                   - {name: small, size: {min: 2M}, access_rate: 0%, age: {min: 2s}, action: nohugepage, \
                      inside: true}\n";
    let (ran, activities) = act("ethp", schemes, pid, "10s");
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let was = before.split(['[', ']']).nth(1).unwrap();
    fs::write(thp, was).unwrap();

    // The lines about a mapping follow the line with its addresses.
    let mut in_hot_kib = 0;
    let mut forbidden = 0;
    let mut here = AddrRange::new(0, PAGE_SIZE).unwrap();
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let address = |text| u64::from_str_radix(text, 16).ok();
            here = address(start).zip(address(end)).and_then(|(s, e)| AddrRange::new(s, e)).unwrap_or(here);
        }
        if first == "AnonHugePages:" && here.intersection(workload.area("hot")).is_some() {
            in_hot_kib += words.next().unwrap().parse::<u64>().unwrap();
        } else if first == "VmFlags:" && words.any(|flag| flag == "nh") {
            forbidden += here.size();
        }
    }
    assert!(in_hot_kib >= 8 << 10, "{in_hot_kib} KiB of huge pages; {ran:?} {activities:?}");
    assert!(forbidden >= 64 * MIB, "{forbidden} bytes; {ran:?}");
    assert!(is_alive(pid));
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_stopped_or_frozen_target_does_not_block_the_run_and_continues_later() {
    let _swap = Zram::of(256);
    let group = Path::new("/sys/fs/cgroup/frozen");
    let cases: [(&str, Operation, Operation); 2] = [
        ("stopped", |pid| drop(shell(&format!("kill -STOP {pid}"))), |pid| drop(shell(&format!("kill -CONT {pid}")))),
        (
            "frozen",
            |pid| {
                let group = "/sys/fs/cgroup/frozen";
                shell(&format!("mkdir -p {group}; echo {pid} > {group}/cgroup.procs; echo 1 > {group}/cgroup.freeze"));
                eventually("it is frozen", || {
                    fs::read_to_string(format!("{group}/cgroup.events")).unwrap().contains("frozen 1")
                });
            },
            |_| drop(shell("echo 0 > /sys/fs/cgroup/frozen/cgroup.freeze")),
        ),
    ];
    for (name, hold, release) in cases {
        let workload = Workload::start(HOT_IN_COLD);
        let pid = workload.process.pid();
        hold(pid);
        let schemes = "- {name: out, access_rate: 0%, age: {min: 1s}, action: pageout}\n\
                       - {name: in, access_rate: 0%, age: {min: 1s}, action: mlock, inside: true, \
                          apply_interval: 1s}\n";
        let (ran, activities) = act(name, schemes, pid, "10s");
        let [out, inside] = &activities.last().unwrap().schemes[..] else { panic!("{activities:?}") };
        assert!(out.total.applied_bytes > 0, "{name}: {ran:?}");
        assert!(inside.total.applied_bytes == 0, "{name}: {inside:?}");
        assert!(inside.total.refused_bytes() > 0 || inside.total.tried_bytes == 0, "{name}: {inside:?}");
        let before = ticks(pid);
        release(pid);
        eventually("the target goes on", || ticks(pid) > before);
        drop(workload);
    }
    eventually("the group can go", || fs::remove_dir(group).is_ok());
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_target_that_ends_or_calls_exec_is_no_error() {
    let file = result_file("exec.yaml");
    fs::write(&file, PRCL.replace("2s", "300ms")).unwrap();
    let pattern = isotherm_lab::pattern_file(HOT_IN_COLD);
    // exec and exit, both while isotherm acts.
    let script = format!("isotherm workload {pattern} --time 2s; exec isotherm workload {pattern} --time 2s");
    let mut command = isotherm(&["run", "-q", "--children", "--schemes", file.to_str().unwrap()]);
    let ran = run(command.args(LONG_INTERVALS).args(["--", "sh", "-c", &script]).stdout(Stdio::null()));
    // A process that begins to run accesses again what was reclaimed of it. There is no swap.
    let is_error = |line: &&str| !["was in memory again", "no free swap"].iter().any(|words| line.contains(words));
    assert_eq!((ran.status, ran.err.lines().find(is_error)), (0, None), "{ran:?}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_goal_on_a_real_process_settles_without_oscillation() {
    let _swap = Zram::of(512);
    // Every page is touched now and then, so swapped-out pages come back and the quota never becomes zero.
    let lukewarm = "about = \"lukewarm\"\n[[area]]\nname = \"all\"\nsize = \"256 MiB\"\n\
                    [[phase]]\ntime = \"1000s\"\ntouch = [{ area = \"all\", every = \"20s\", order = \"random\" }]\n";
    let workload = Workload::start(lukewarm);
    let pid = workload.process.pid();
    eventually("all memory is resident", || resident(pid, workload.area("all")) > 0.9);
    let memory = isotherm_kernel::system_memory(Path::new("/")).unwrap();
    let goal = memory.free_share() + 96.0 * MIB as f64 / memory.total as f64;
    let schemes = format!(
        "- name: free\n  access_rate: [0%, 10%]\n  action: pageout\n  quota:\n    period: 1s\n    goals:\n      \
         - free_memory: {:.2}%\n",
        goal * 100.0
    );
    let began = Instant::now();
    // Without surveys, which slow the scheme down when what it has freed comes back.
    let (ran, activities) = act_with(&["--survey", "off"], "goal", &schemes, pid, "75s");
    assert!(began.elapsed() < Duration::from_secs(120));
    let settled: Vec<f64> = activities.iter().skip(activities.len() * 2 / 3).map(|a| a.system.free_share()).collect();
    let of_all = |share: f64| share * memory.total as f64 / MIB as f64;
    let mean = settled.iter().sum::<f64>() / settled.len() as f64;
    let away = settled.iter().map(|share| (share - mean).abs()).fold(0.0, f64::max);
    println!("goal {:.1} MiB, mean {:.1} MiB, at most {:.1} MiB from it", of_all(goal), of_all(mean), of_all(away));
    // A goal counts as reached within 2 %. Without the scheme, 96 MiB are missing: 5.6 %.
    assert!((mean / goal - 1.0).abs() < 0.03, "{settled:?} {goal} {ran:?}");
    assert!(of_all(away) < 48.0, "{settled:?} {goal} {ran:?}");
}
