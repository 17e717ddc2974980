//! The reports on idle times and on temperature, of recordings whose figures are known.

use std::time::Duration;

use isotherm_report::idle_time::IdleTime;
use isotherm_report::temperature::{BandKind, Temperatures};
use isotherm_report::wss::Basis;
use isotherm_report::{Kind, Selection};

use crate::made::checked::text;
use crate::made::{self, MIB};

#[test]
fn surveys_tell_for_how_long_memory_has_been_idle() {
    let idle = IdleTime::new(&made::surveyed(20), &Selection::default(), None).unwrap();
    assert_eq!((idle.basis, idle.time), (Basis::Survey, Duration::from_secs(20)));
    assert_eq!(idle.edges, [0, 1, 2, 5, 10].map(Duration::from_secs));
    // 8 MiB are touched all the time, 8 MiB were 15 s ago, and 4 MiB cannot be observed.
    assert_eq!(idle.total.bytes, [8, 0, 0, 0, 52].map(|mib| mib * MIB));
    assert_eq!((idle.total.unobservable_bytes, idle.total.unknown_bytes), (4 * MIB, 0));
    assert_eq!(idle.estimated_bytes, 4 * MIB);
    // At 6 s, the second 8 MiB have been idle for a second, and the rest since the first survey, 5 s ago, at least.
    let moment = idle.over_time.iter().find(|moment| moment.time_ns == 6_000_000_000).unwrap();
    assert_eq!(moment.sizes.bytes, [8, 8, 0, 44, 0].map(|mib| mib * MIB));
    assert_eq!(moment.sizes.unknown_bytes, 0);
    assert_eq!(idle.mappings[0].name, "anonymous");
    assert_eq!(idle.mappings[0].sizes, idle.total);
    assert_eq!(idle.groups[0].name, "demo");
}

#[test]
fn without_surveys_idle_times_are_the_ages_of_regions_without_an_access() {
    let idle = IdleTime::new(&made::phases(40), &Selection::default(), None).unwrap();
    assert_eq!(idle.basis, Basis::Samples);
    assert_eq!(idle.edges, [0, 1, 2].map(Duration::from_secs));
    // 20 MiB of the heap have been idle for 4 s, and 8 MiB of it cannot be observed.
    let heap = idle.mappings.iter().find(|of| of.name == "[heap]").unwrap();
    assert_eq!(heap.sizes.bytes, [20 * MIB, 0, 20 * MIB]);
    assert_eq!(heap.sizes.unobservable_bytes, 8 * MIB);
    let cache = idle.mappings.iter().find(|of| of.name == "/dev/shm/cache").unwrap();
    assert_eq!(cache.sizes.bytes, [0, 0, 44 * MIB]);
}

#[test]
fn temperatures_are_the_rates_of_samples_and_what_surveys_add() {
    let temperatures = Temperatures::new(&made::phases(40), &Selection::default(), None).unwrap();
    let bands = &temperatures.bands;
    assert_eq!(bands[0].kind, BandKind::NotAccessed);
    assert!(bands[1..].iter().all(|band| band.kind == BandKind::Rate && band.from_hz < band.to_hz), "{bands:?}");
    // The stack is accessed in each sample over 5 ms.
    let last = bands.last().unwrap();
    assert_eq!((last.from_hz, last.to_hz), (Some(200.0), Some(500.0)));
    let stack = temperatures.mappings.iter().find(|of| of.name == "[stack]").unwrap();
    assert_eq!(stack.sizes.bytes.last(), Some(&(MIB / 8)));
    assert!(last.at_least_bytes >= MIB / 8);
    // The cache exists for half of the time, and is never accessed.
    let cache = temperatures.mappings.iter().find(|of| of.name == "/dev/shm/cache").unwrap();
    assert_eq!((cache.sizes.bytes[0], cache.sizes.all()), (22 * MIB, 22 * MIB));

    let surveyed = Temperatures::new(&made::surveyed(20), &Selection::default(), None).unwrap();
    assert_eq!(
        surveyed.bands.iter().map(|band| band.kind).collect::<Vec<_>>(),
        [BandKind::NotAccessed, BandKind::SurveysOnly]
    );
    let last = &surveyed.over_time.last().unwrap().sizes;
    assert_eq!(last.bytes, [48 * MIB, 8 * MIB]);
    assert_eq!((last.unobservable_bytes, last.unknown_bytes), (4 * MIB, 4 * MIB));
}

#[test]
fn the_texts_of_surveyed_memory_fit_80_columns() {
    insta::assert_snapshot!("idle-time", text(Kind::IdleTime, &made::surveyed(20), 80));
    insta::assert_snapshot!("temperature", text(Kind::Temperature, &made::surveyed(20), 80));
}
