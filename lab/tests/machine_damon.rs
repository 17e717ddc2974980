//! The kernel `damon` has the features that the tests of probes and actions need.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;
use std::process::Command;

use isotherm_lab::run;

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn damon_exists_and_is_unused() {
    assert_eq!(read("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds").trim(), "0");
    assert!(Path::new("/sys/kernel/tracing/events/damon/damon_aggregated/format").exists());
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn idle_pages_are_tracked() {
    assert!(Path::new("/sys/kernel/mm/page_idle/bitmap").exists());
    assert!(Path::new("/proc/kpageflags").exists() && Path::new("/proc/kpagecgroup").exists());
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn there_are_two_nodes_and_the_second_is_the_slower() {
    let memory = |node: u32| {
        let text = read(&format!("/sys/devices/system/node/node{node}/meminfo"));
        text.lines()
            .find(|l| l.contains("MemTotal"))
            .unwrap()
            .split_whitespace()
            .nth(3)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(memory(0) > 200_000 && memory(1) > 200_000, "{} and {} KiB", memory(0), memory(1));
    assert_eq!(read("/sys/devices/system/node/has_cpu").trim(), "0");
    let latency = |node: u32| {
        read(&format!("/sys/devices/system/node/node{node}/access0/initiators/read_latency"))
            .trim()
            .parse::<u32>()
            .unwrap()
    };
    assert_eq!((latency(0), latency(1)), (100, 300), "latencies of the HMAT in nanoseconds");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_can_be_swapped_to_zram() {
    let script = "echo 64M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0 && cat /proc/swaps && \
                  swapoff /dev/zram0 && echo 1 > /sys/block/zram0/reset";
    let ran = run(Command::new("sh").args(["-ec", script]));
    assert!(ran.status == 0 && ran.out.contains("/dev/zram0"), "{ran:?}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn there_are_cgroups_with_memory_and_pressure() {
    let controllers = read("/sys/fs/cgroup/cgroup.controllers");
    for controller in ["cpu", "io", "memory", "pids"] {
        assert!(controllers.split_whitespace().any(|c| c == controller), "{controller} is not in: {controllers}");
    }
    assert!(read("/proc/pressure/memory").contains("some avg10="));
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_block_of_memory_can_be_taken_offline_and_brought_back() {
    // A block of the second node, which is still unused.
    let script = r#"
        for block in /sys/devices/system/node/node1/memory*; do
          if echo offline > "$block/state"; then
            grep -q offline "$block/state" && echo online > "$block/state" && exec cat "$block/state"
          fi
        done
        exit 1"#;
    let ran = run(Command::new("sh").args(["-c", script]));
    assert_eq!((ran.status, ran.out.trim()), (0, "online"), "{ran:?}");
}
