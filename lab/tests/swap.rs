//! Surveys tell how much of each mapping is in swap.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;
use std::process::{Command, Stdio};

use isotherm_core::survey::BlockSums;
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::{Pidfd, Process, memory_use};
use isotherm_lab::{EMULATED, Running, Workload, Zram, eventually, report, result_file, succeed};
use isotherm_record::Recording;

const MIB: u64 = 1 << 20;

/// 64 MiB of cold memory, and some that is in use.
const COLD: &str = r#"
about = "cold"
[[area]]
name = "cold"
size = "64 MiB"
[[area]]
name = "hot"
size = "4 MiB"
[[phase]]
time = "1000s"
touch = [{ area = "hot", every = "10ms" }]
"#;

/// The bytes of a process that are in swap.
fn swapped(pid: u32) -> u64 {
    memory_use(Path::new("/"), pid).unwrap().swapped
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn surveys_tell_what_of_a_mapping_is_in_swap() {
    let _swap = Zram::of(256);
    let workload = Workload::start(COLD);
    let (pid, cold) = (workload.process.pid(), workload.area("cold"));
    // The ends lie within blocks of 2 MiB, and seven blocks are wholly in swap.
    let start = cold.start().next_multiple_of(2 * MIB) + 9 * MIB;
    let out = AddrRange::new(start, start + 16 * MIB).unwrap();
    let handle = Pidfd::open(pid).unwrap();
    eventually("16 MiB are in swap", || {
        advise(&handle, [out], Advice::PageOut).unwrap();
        swapped(pid) >= 16 * MIB
    });
    let all = swapped(pid);
    assert!(all.abs_diff(16 * MIB) <= MIB, "{all}");

    for probe in ["bpf", "idle", "refs"] {
        let recording = result_file(&format!("swap-{probe}.rec"));
        let file = recording.to_str().unwrap();
        let pid = pid.to_string();
        let options = ["--probe", probe, "--survey", "1s", "--duration", "6s", "--pid", &pid, "-o", file];
        succeed(&[&["record"], &options[..], &EMULATED].concat());

        let last = Recording::open(&recording).unwrap().surveys().map(Result::unwrap).last().unwrap();
        let target = &last.survey.targets[0];
        let of_area = target.surveyed().filter(|(mapping, _)| mapping.range.intersection(cold).is_some());
        let found: u64 = of_area.map(|(_, sums)| sums.figures.swapped.known().unwrap()).sum();
        assert!(found.abs_diff(16 * MIB) <= MIB, "{probe}: {found} of {all} at {:?}", last.survey.time);
        let total = last.survey.total.unwrap().sums.figures.swapped.known().unwrap();
        assert_eq!(total, target.total().figures.swapped.known().unwrap(), "{probe}");
        let in_swap = |block: BlockSums| u64::from(block.pages.swapped.known().unwrap()) * PAGE_SIZE;
        let by_block: u64 = target.by_block.iter().map(in_swap).sum();
        assert!(by_block == total || probe == "refs" && target.by_block.is_empty(), "{probe}: {by_block} of {total}");

        let summary = &report("summary", &recording)[0];
        let anonymous = summary["mappings"].as_array().unwrap().iter().find(|of| of["name"] == "anonymous").unwrap();
        for of in [anonymous, &summary["total"], &summary["targets"][0]] {
            let bytes = |key: &str| of[key].as_u64().unwrap();
            assert!(bytes("swapped_bytes").abs_diff(16 * MIB) <= 2 * MIB, "{probe}: {of}");
            // 52 MiB of the areas are left, and isotherm itself.
            assert!((50 * MIB..90 * MIB).contains(&bytes("resident_bytes")), "{probe}: {of}");
        }
        println!("{}", succeed(&["report", "summary", file]));
    }
    // To read page tables brings no page back.
    assert!(swapped(pid).abs_diff(all) <= MIB);
}

/// 24 MiB in a shell, which forks when `/tmp/fork` appears. Each of the two says its process ID.
const SHELL: &str = r#"
text=$(yes | head -c 25165824)
echo parent $$
until [ -e /tmp/fork ]; do sleep 0.1; done
(sleep 1000; :) &
echo child $!
wait
"#;

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn what_two_processes_have_in_swap_in_common_counts_once() {
    let _swap = Zram::of(256);
    let _ = std::fs::remove_file("/tmp/fork");
    let mut shell = Running::start(Command::new("sh").args(["-c", SHELL]).stdin(Stdio::null()));
    shell.wait_for_line("parent");
    let parent = shell.pid();
    let process = Process::open(parent).unwrap();
    let mappings = process.mappings().unwrap();
    let anonymous = mappings.iter().filter(|mapping| mapping.permissions.write && !mapping.name.starts_with('/'));
    let anonymous: Vec<AddrRange> = anonymous.map(|mapping| mapping.range).collect();
    eventually("20 MiB are in swap", || {
        advise(process.pidfd(), anonymous.clone(), Advice::PageOut).unwrap();
        swapped(parent) >= 20 * MIB
    });
    std::fs::write("/tmp/fork", "").unwrap();
    let line = shell.wait_for_line("child");
    let child: u32 = line.split_ascii_whitespace().last().unwrap().parse().unwrap();
    for probe in ["bpf", "idle"] {
        let recording = result_file(&format!("swap-twice-{probe}.rec"));
        let file = recording.to_str().unwrap();
        let (parent, child) = (parent.to_string(), child.to_string());
        let options = ["--probe", probe, "--survey", "1s", "--duration", "4s", "--pid", &parent, "--pid", &child];
        succeed(&[&["record", "-o", file], &options[..], &EMULATED].concat());
        let last = Recording::open(&recording).unwrap().surveys().map(Result::unwrap).last().unwrap();
        let of_each: Vec<u64> =
            last.survey.targets.iter().map(|target| target.total().figures.swapped.known().unwrap()).collect();
        assert!(of_each.len() == 2 && of_each.iter().all(|&bytes| bytes >= 16 * MIB), "{probe}: {of_each:?}");
        let total = last.survey.total.unwrap().sums.figures.swapped.known().unwrap();
        assert!(total.abs_diff(of_each[0].max(of_each[1])) <= MIB, "{probe}: {total} of {of_each:?}");
    }
    Command::new("kill").arg(child.to_string()).status().unwrap();
}
