//! Tests with recordings that were made to harm: their checksums are right, what they say is not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_ipc::{CompressionType, MetadataVersion};
use isotherm_core::scheme::{ActedRegion, Action, Application, RefusalCount, Report, Statistics};
use isotherm_core::{AddrRange, Mapping, MemoryUse, PAGE_SIZE, RegionSnapshot, SystemMemory, TargetId};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::columns::{Columns, NewRow};
use crate::compat;
use crate::message::frame;
use crate::{Activity, Cost, Header, Host, RecordError, Recording, Row, TargetInfo, WITH_ACTIVITIES, schema};

fn header() -> Header {
    Header {
        isotherm_version: "0.1.0".into(),
        probe: "sim".into(),
        granularity: "page".into(),
        sampling_ns: 5_000_000,
        aggregation_ns: 100_000_000,
        update_ns: 1_000_000_000,
        min_regions: 10,
        max_regions: 1000,
        seed: 1,
        started_unix_ns: 0,
        host: Host {
            name: "h".into(),
            kernel: "6".into(),
            architecture: "x86_64".into(),
            cpus: 1,
            memory_bytes: 1 << 30,
        },
    }
}

fn region(pages: std::ops::Range<u64>, nr_accesses: u32) -> RegionSnapshot {
    let range = AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE).unwrap();
    RegionSnapshot { range, nr_accesses, nr_samples: 20, nr_unobservable: 0, age: 3 }
}

/// A message's flatbuffer and body, not framed yet.
type Parts = (Vec<u8>, Vec<u8>);

fn options(compression: Option<CompressionType>) -> IpcWriteOptions {
    IpcWriteOptions::try_new(8, false, MetadataVersion::V5).unwrap().try_with_compression(compression).unwrap()
}

fn schema_parts() -> Parts {
    let mut dictionaries = DictionaryTracker::new(true);
    let schema = schema::schema(WITH_ACTIVITIES, &header()).unwrap();
    let encoded =
        IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(&schema, &mut dictionaries, &options(None));
    (encoded.ipc_message, encoded.arrow_data)
}

fn batch_parts(batch: &RecordBatch, compression: Option<CompressionType>) -> Parts {
    let mut dictionaries = DictionaryTracker::new(true);
    let (_, encoded) = IpcDataGenerator::default()
        .encode(batch, &mut dictionaries, &options(compression), &mut Default::default())
        .unwrap();
    (encoded.ipc_message, encoded.arrow_data)
}

/// A batch of these rows, unchecked.
fn batch(rows: &[NewRow<'_>]) -> RecordBatch {
    let mut columns = Columns::default();
    rows.iter().for_each(|row| columns.push(row));
    columns.take(&Arc::new(schema::schema(WITH_ACTIVITIES, &header()).unwrap())).unwrap()
}

/// The target whose number is this; it started a nanosecond after the epoch.
fn target(pid: u32) -> TargetId {
    TargetId::process(pid, Duration::from_nanos(u64::from(pid == 1)))
}

fn some_batch() -> RecordBatch {
    let info = TargetInfo { command: "a command".into(), started_unix_ns: 1 };
    let mapping = |at: u64| Mapping { name: "[heap]".into(), ..Mapping::anonymous(region(at..at + 3, 0).range) };
    let (mappings, cost) = ([mapping(1), mapping(9)], Cost { rounds: 20, ..Cost::default() });
    let regions: Vec<_> = (0..40).map(|i| region(i * 2..i * 2 + 1, 5)).collect();
    let first = NewRow {
        time_ns: 1,
        aggregation_ns: 1,
        samples: 20,
        pid: 1,
        info: Some(&info),
        mappings: Some(&mappings),
        regions: &regions,
        cost: Some(&cost),
        activity: None,
    };
    let next = NewRow { time_ns: 2, info: None, mappings: None, cost: None, ..first };
    let (acted, idle) = (some_activity(), Activity { schemes: Vec::new(), memory: Vec::new(), ..some_activity() });
    let activity = NewRow { samples: 0, pid: 0, regions: &[], activity: Some(&acted), ..next };
    batch(&[first, next, activity, NewRow { time_ns: 3, ..next }, NewRow { activity: Some(&idle), ..activity }])
}

fn some_activity() -> Activity {
    let report = |name: &str, quota: Option<u64>, goal_score| Report {
        name: name.into(),
        action: Action::PageOut,
        awake: quota.is_some(),
        quota,
        goal_score,
        total: Statistics {
            refusals: vec![
                RefusalCount { refusal: compat::refusal(11), regions: 1, bytes: 4096 },
                RefusalCount { refusal: compat::refusal(22), regions: 2, bytes: 8192 },
            ],
            ..Statistics::default()
        },
        last: Application {
            regions: (1..9)
                .map(|i| ActedRegion { target: target(1), range: region(i..i + 1, 0).range, applied: 4096 })
                .collect(),
            ..Application::default()
        },
    };
    Activity {
        time: Duration::from_nanos(2),
        schemes: vec![report("cold", Some(1 << 20), Some(0.5)), report("hot", None, None)],
        memory: vec![(target(1), MemoryUse::default()), (target(2), MemoryUse::default())],
        system: SystemMemory { stalled: Some(Duration::from_nanos(1)), ..SystemMemory::default() },
    }
}

/// Reads a recording of these messages.
fn read(directory: &Path, messages: &[Parts]) -> Result<(Vec<Row>, Vec<Activity>), RecordError> {
    let bytes: Vec<u8> = messages.iter().flat_map(|(flatbuffer, body)| frame(flatbuffer, body).unwrap()).collect();
    let path = directory.join("a.rec");
    std::fs::write(&path, bytes).unwrap();
    let recording = Recording::open(&path)?;
    let activities = recording.activities()?.collect::<Result<_, _>>();
    let rows = recording.snapshots()?.map(|record| Ok(record?.into_rows()));
    Ok((rows.collect::<Result<Vec<_>, RecordError>>()?.into_iter().flatten().collect(), activities?))
}

/// The reason for which a batch of these rows is refused.
fn refusal(rows: &[NewRow<'_>]) -> String {
    let directory = tempfile::tempdir().unwrap();
    match read(directory.path(), &[schema_parts(), batch_parts(&batch(rows), None)]) {
        Err(RecordError::Damaged { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_that_break_the_rules_are_refused() {
    let info = TargetInfo { command: String::new(), started_unix_ns: 0 };
    let good = NewRow {
        time_ns: 5,
        aggregation_ns: 1,
        samples: 20,
        pid: 1,
        info: Some(&info),
        mappings: Some(&[]),
        regions: &[],
        cost: None,
        activity: None,
    };
    let overlap = [region(1..3, 0), region(2..4, 0)];
    let too_many = [region(1..3, 21)];
    let unobservable = [RegionSnapshot { nr_unobservable: 21, ..region(1..3, 0) }];
    let mapping = Mapping::anonymous(region(1..3, 0).range);
    let twice = [mapping.clone(), mapping];

    assert_eq!(refusal(&[NewRow { regions: &overlap, ..good }]), "regions are out of order or overlap");
    assert_eq!(refusal(&[NewRow { regions: &too_many, ..good }]), "a region has more accesses than there are samples");
    assert_eq!(
        refusal(&[NewRow { regions: &unobservable, ..good }]),
        "a region has more unobservable samples than there are samples"
    );
    assert_eq!(refusal(&[NewRow { mappings: Some(&twice), ..good }]), "mappings are out of order or overlap");
    assert_eq!(refusal(&[NewRow { info: None, ..good }]), "the first row of a target does not say what it is");
    assert_eq!(refusal(&[NewRow { mappings: None, ..good }]), "the first row of a target has no mappings");
    assert_eq!(refusal(&[good, NewRow { time_ns: 4, ..good }]), "time goes backwards");
}

#[test]
fn a_second_schema_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = read(directory.path(), &[schema_parts(), schema_parts()]).unwrap_err();
    assert!(matches!(&error, RecordError::Damaged { reason, .. } if reason == "a message is not a batch of rows"));
}

#[test]
fn a_buffer_that_claims_to_be_huge_is_refused_before_memory_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let (flatbuffer, mut body) = batch_parts(&some_batch(), Some(CompressionType::ZSTD));
    body[..8].copy_from_slice(&(1_i64 << 40).to_le_bytes());
    let error = read(directory.path(), &[schema_parts(), (flatbuffer, body)]).unwrap_err();
    assert!(
        matches!(&error, RecordError::Damaged { reason, .. } if reason == "a column has more or fewer bytes than values"),
        "{error}"
    );
}

#[test]
fn activities_that_break_the_rules_are_refused() {
    let row = |activity| NewRow {
        time_ns: 0,
        aggregation_ns: 0,
        samples: 0,
        pid: 0,
        info: None,
        mappings: None,
        regions: &[],
        cost: None,
        activity: Some(activity),
    };
    let (early, late) = (some_activity(), Activity { time: Duration::from_nanos(3), ..some_activity() });
    assert_eq!(refusal(&[row(&late), row(&early)]), "the time of activities goes backwards");

    let changed = |from: &[u8], to: &[u8]| {
        let directory = tempfile::tempdir().unwrap();
        let (flatbuffer, mut body) = batch_parts(&batch(&[row(&early)]), None);
        let at = body.windows(from.len()).position(|window| window == from).unwrap();
        body[at..at + to.len()].copy_from_slice(to);
        match read(directory.path(), &[schema_parts(), (flatbuffer, body)]) {
            Err(RecordError::Damaged { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(changed(b"pageout", b"pagefar"), "a scheme has an action that the format does not know");
    let (half, none) = (0.5_f64.to_le_bytes(), f64::NAN.to_le_bytes());
    assert_eq!(changed(&half, &none), "the score of a scheme's goals is not a number");
    // The starts of the first three regions: the first one's becomes its end.
    let [first, second, third] = [4096_u64, 8192, 12288].map(u64::to_le_bytes);
    let (starts, empty) = ([first, second, third].concat(), [second, second, third].concat());
    assert_eq!(changed(&starts, &empty), "a range of addresses is empty or reversed");
}

/// A change of a message: 1 to 8 bytes from some place on, with values that are likely to hurt.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, Vec<u8>)>> {
    let bytes = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        any::<i64>().prop_map(|number| number.to_le_bytes().to_vec()),
        prop::sample::select(vec![i64::MAX, i64::MIN, -1, -2, 0, 1, 1 << 30, 1 << 31, 1 << 32, 1 << 61])
            .prop_map(|number| number.to_le_bytes().to_vec()),
        prop::sample::select(vec![i32::MAX, i32::MIN, -1, 0, 1, 3, 100])
            .prop_map(|number| number.to_le_bytes().to_vec()),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), bytes), 1..4)
}

fn apply(changes: &[(prop::sample::Index, Vec<u8>)], target: &mut [u8]) {
    for (at, bytes) in changes {
        let at = at.index(target.len());
        target[at..].iter_mut().zip(bytes).for_each(|(old, new)| *old = *new);
    }
}

proptest! {
    #![proptest_config(Config { cases: 1000, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..Config::default() })]

    /// Whatever it says, it is read or refused: nothing panics, nothing takes memory without bound.
    #[test]
    fn no_message_does_harm(
        what in 0..3,
        compressed in any::<bool>(),
        changes in changes(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let compression = compressed.then_some(CompressionType::ZSTD);
        let (mut schema, mut batch) = (schema_parts(), batch_parts(&some_batch(), compression));
        match what {
            0 => apply(&changes, &mut schema.0),
            1 => apply(&changes, &mut batch.0),
            _ => apply(&changes, &mut batch.1),
        }
        // Rows or an error; what matters is to get here.
        drop(read(directory.path(), &[schema, batch]));
    }
}
