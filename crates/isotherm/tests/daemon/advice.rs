//! Advice on the memory of cgroups, from a history.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{MappingSums, PageSums, SurveySnapshot, TargetSurvey, TotalSums, WINDOWS};
use isotherm_core::{AddrRange, Figures, Mapping, Quantity, TargetId};
use isotherm_kernel::cgroup::of_process;
use isotherm_record::{Header, Recording, SurveyRecord, TargetInfo};
use isotherm_run::{EndReason, Event, EventSink, RecordingSink};
use isotherm_testing::or_skip;
use serde_json::Value;

use super::Running;
use crate::common::{Place, eventually};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// A survey in which a process of a cgroup has used 400 of 500 MiB within each window.
fn survey(nth: u32, cgroup: &str) -> Event {
    let mappings: Arc<[Mapping]> = [Mapping::anonymous(AddrRange::new(1 << 30, 2 << 30).unwrap())].into();
    let id = TargetId::process(7, Duration::ZERO);
    let figures = Figures { present: 500 * MIB, touched: 400 * MIB, swapped: Quantity::exact(0), ..Figures::default() };
    let sums = PageSums { within: [400 * MIB; WINDOWS.len()], ..PageSums::of(figures) };
    let target = TargetSurvey {
        id,
        by_mapping: vec![MappingSums::new(0, &mappings, sums).unwrap()],
        mappings,
        by_block: std::iter::empty().collect(),
        by_node: Vec::new(),
    };
    let info = TargetInfo { cgroup: Some(cgroup.into()), command: "server".into(), ..TargetInfo::default() };
    let survey = SurveySnapshot {
        time: MINUTE * nth,
        interval: if nth == 0 { Duration::ZERO } else { MINUTE },
        total: Some(TotalSums { sums: target.total(), shared: 0 }),
        targets: vec![target],
        ..SurveySnapshot::default()
    };
    let infos = vec![(id, Arc::new(info))].into();
    Event::Survey(Arc::new(SurveyRecord { survey, infos, ..SurveyRecord::default() }))
}

/// Adds the minutes of three hours, up to one hour ago, to the history of a group.
fn remember(place: &Place, group: &str, cgroup: &str) {
    let newest = place.history(group).into_iter().find_map(|path| Recording::open(&path).ok()).unwrap();
    let started = newest.header().started_unix_ns - 4 * 3600 * 1_000_000_000;
    let header = Header { started_unix_ns: started, ..newest.header().clone() };
    let path = place.path("state/history").join(group).join(format!("minutes-{:013}.rec", started / 1_000_000));
    let mut sink = RecordingSink::create(&path, header, Duration::ZERO, false).unwrap();
    (0..180).for_each(|nth| sink.event(&survey(nth, cgroup)).unwrap());
    sink.event(&Event::End(EndReason::Stopped)).unwrap();
}

#[test]
fn advice_is_what_the_history_says_as_kubernetes_writes_it_beside_what_is_in_force() {
    let running = Running::new("");
    let none = "no advice: 0 s of history are known, and at least 1 h are needed";
    eventually("there is too little history", || running.said(&["advice", "a"]).contains(none));
    let refused = running.ctl(&["advice", "b"]);
    assert!(refused.status == 1 && refused.err.contains("there is no group \"b\""), "{refused:?}");

    let cgroup = or_skip!(of_process(Path::new("/"), running.target.0.id()).ok_or("there are no cgroups"));
    remember(&running.place, "a", &cgroup);
    let all = running.get("/v1/groups/a/advice");
    let [advice] = &all.as_array().unwrap()[..] else { panic!("{all}") };
    let size = &advice["size"];
    assert_eq!((&advice["group"], &advice["cgroup"]), (&Value::from("a"), &Value::from(cgroup)));
    assert_eq!((size["usual_bytes"].as_u64(), size["peak_bytes"].as_u64()), (Some(400 * MIB), Some(400 * MIB)));
    let request = size["request_bytes"].as_u64().unwrap();
    assert!(request >= 460 * MIB && advice["withheld"].is_null(), "{advice}");
    let written = |bytes: u64| format!("{}Mi", bytes / MIB);
    assert_eq!(advice["resources"]["requests"]["memory"], written(request));
    assert_eq!(advice["resources"]["limits"]["memory"], written(size["limit_bytes"].as_u64().unwrap()));
    assert!(advice["now"]["version"].is_u64(), "{advice}");
    // What is charged changes meanwhile.
    let steady = |all: &Value| (all[0]["group"].clone(), all[0]["size"]["usual_bytes"].clone());
    assert_eq!(steady(&running.get("/v1/advice")), steady(&all));

    let said = running.said(&["advice"]);
    let parts = ["requests.memory: ", "95 % of the minutes of 2 h 50 min needed at most 400 MiB", "Confidence: low: "];
    for part in parts.into_iter().chain(["now: ", "limits.memory: "]) {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.lines().all(|line| line.len() <= 110), "{said}");
    assert_eq!(steady(&serde_json::from_str(&running.said(&["advice", "--json"])).unwrap()), steady(&all));
    running.end();
}

#[test]
fn a_group_of_which_cgroups_cannot_be_limited_says_what_works_there() {
    let is_v1 = std::fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| text.contains(":memory:"));
    or_skip!(is_v1.then_some(()).ok_or("memory is not accounted by cgroups of version 1"));
    let group = "  - {name: b, select: {cgroup: [/none]}, act: true, right_size: true}\n";
    let running = Running::new(group);
    eventually("it is told why", || running.get("/v1/groups/b")["state"] == "failed");
    let why = running.get("/v1/groups/b")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("version 1") && why.contains("pageout and cold work"), "{why}");
    running.end();
}
