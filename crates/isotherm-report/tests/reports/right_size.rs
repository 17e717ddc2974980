//! What cgroups have needed, from made surveys.

use std::time::Duration;

use isotherm_core::survey::TargetSurvey;
use isotherm_record::TargetInfo;
use isotherm_report::Selection;
use isotherm_report::right_size::{CgroupNeeds, needs};

use crate::made::{MIB, Made, process, surveyed};

/// The recording, in which the server is in a cgroup.
fn in_cgroup(seconds: u32, path: &str) -> Made {
    let mut source = surveyed(seconds);
    for record in &mut source.surveys {
        record.infos = vec![(process(1234), of_cgroup(path))].into();
    }
    source
}

fn of_cgroup(path: &str) -> std::sync::Arc<TargetInfo> {
    TargetInfo { cgroup: Some(path.into()), ..TargetInfo::default() }.into()
}

fn of(source: &Made) -> Vec<CgroupNeeds> {
    needs(source, &Selection::default(), Duration::from_secs(10), &str::to_owned).unwrap()
}

#[test]
fn what_is_unobservable_or_unknown_is_needed_and_the_first_window_is_not_known() {
    let found = of(&in_cgroup(45, "/a"));
    let [of] = &found[..] else { panic!("{found:?}") };
    assert_eq!((of.path.as_deref(), of.counted_once), (Some("/a"), true));
    // 8 MiB are used all the time, 8 MiB in the fifth second, and 8 MiB are unobservable or unknown.
    let needed: Vec<(u64, u64)> = of.needs.iter().map(|need| (need.time.as_secs(), need.bytes / MIB)).collect();
    assert_eq!((needed[0], needed[3], needed[4], needed[34]), ((11, 24), (14, 24), (15, 16), (45, 16)));
    assert!(of.needs.iter().all(|need| need.held == Duration::from_secs(1)));
}

#[test]
fn a_process_that_starts_again_belongs_to_its_cgroup_and_another_cgroup_counts_by_itself() {
    let mut source = in_cgroup(60, "/a");
    for (second, record) in source.surveys.iter_mut().enumerate() {
        // The process of `/a` starts again after half of the time.
        let server = if second < 30 { process(1234) } else { process(1235) };
        record.survey.targets[0].id = server;
        record.infos = vec![(server, of_cgroup("/a"))].into();
    }
    let [one] = &of(&source)[..] else { panic!("there is one cgroup") };
    assert!(one.counted_once && one.needs.len() == 50);

    for record in &mut source.surveys {
        let other = TargetSurvey { id: process(77), ..record.survey.targets[0].clone() };
        record.infos = [&record.infos[..], &[(other.id, of_cgroup("/b"))]].concat().into();
        record.survey.targets.push(other);
        record.survey.total = None;
    }
    let found = of(&source);
    let paths: Vec<_> = found.iter().map(|of| (of.path.as_deref().unwrap(), of.counted_once)).collect();
    assert_eq!(paths, [("/a", false), ("/b", true)]);
    assert!(found.iter().all(|of| of.needs.len() == 50 && of.needs[49].bytes == 16 * MIB), "{found:?}");
    // Both count for one that accounts the memory of both.
    let together = needs(&source, &Selection::default(), Duration::from_secs(10), &|_| "/".to_owned()).unwrap();
    assert_eq!((together.len(), together[0].needs[49].bytes), (1, 32 * MIB));
}
