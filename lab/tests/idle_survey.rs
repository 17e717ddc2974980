//! `isotherm idle` by page tables: its figures are right on any kernel.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;

use isotherm_lab::idle::{
    CgroupWorkload, MIB, V2, account_in_v2, assert_temperature, bytes, idle, own, with_huge_pages,
};

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn figures_of_cgroups_are_right_by_page_tables() {
    account_in_v2();
    // Without idle page tracking, page tables are the default.
    let tracks = Path::new("/sys/kernel/mm/page_idle/bitmap").exists();
    let probe: &[&str] = if tracks { &["--probe", "bpf"] } else { &[] };
    let idle = |arguments: &[&str]| idle(&[probe, arguments].concat());

    let one = CgroupWorkload::new(&format!("{V2}/one"), 320, 96);
    let inner = CgroupWorkload::new(&format!("{V2}/outer/inner"), 128, 160);
    let huge = with_huge_pages(|| CgroupWorkload::new(&format!("{V2}/huge"), 256, 64));
    let arguments = ["--cgroup", "/one", "--cgroup", &format!("{V2}/outer"), "--cgroup", "/huge"];
    let reports = idle(&[&arguments[..], &["--interval", "4s", "--count", "3", "--histogram"]].concat());
    assert_eq!(reports.len(), 3);
    for report in &reports {
        assert_eq!((&report["way"], &report["cgroup_version"]), (&"page_tables".into(), &2.into()));
        assert_temperature(own(report, "/one"), 320, 96);
        assert_temperature(own(report, "/outer/inner"), 128, 160);
        assert_temperature(own(report, "/huge"), 256, 64);
    }
    // Cold memory has been idle for all three intervals. So is a part of the program itself.
    let last = own(&reports[2], "/one");
    let ages = last["idle_by_intervals"].as_array().unwrap();
    let three = ages.iter().find(|age| age["intervals"] == 3).unwrap();
    assert!((316 * MIB..=bytes(last, "idle_bytes")).contains(&bytes(three, "bytes")), "{ages:?}");

    // All processes. Those that end during the run are left out.
    let report = &idle(&["--by", "process", "--interval", "3s", "--count", "1"])[0];
    let pids: Vec<String> =
        report["processes"].as_array().unwrap().iter().map(|process| process["pid"].to_string()).collect();
    assert!([&one, &inner, &huge].iter().all(|inhabited| pids.contains(&inhabited.pid())), "{pids:?}");
    assert!(bytes(&report["total"], "idle_bytes") >= (320 + 128 + 256) * MIB);
    [one, inner, huge].into_iter().for_each(CgroupWorkload::end);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn no_huge_page_is_split() {
    account_in_v2();
    let huge = with_huge_pages(|| CgroupWorkload::new(&format!("{V2}/split"), 128, 32));
    let rollup = || fs::read_to_string(format!("/proc/{}/smaps_rollup", huge.pid())).unwrap();
    let kib = |of: &str, key: &str| -> u64 {
        let line = of.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let was = rollup();
    assert!(kib(&was, "AnonHugePages:") >= 128 * 1024, "{was}");
    idle(&["--probe", "bpf", "--pid", &huge.pid(), "--interval", "500ms", "--count", "4"]);
    let now = rollup();
    assert!(kib(&now, "AnonHugePages:") >= kib(&was, "AnonHugePages:"), "{was}{now}");
    huge.end();
}
