//! Tests with malicious recordings: their checksums are right, but their content is wrong.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, UInt64Array};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{DataType, Field, Schema};
use isotherm_core::scheme::{ActedRegion, Action, Application, RefusalCount, RefusalReason, Report, Statistics};
use isotherm_core::survey::{
    BLOCK_SIZE, BlockSums, MappingSums, NodeSums, PageSums, SurveyCost, SurveySnapshot, TargetSurvey, WINDOWS,
};
use isotherm_core::{
    AddrRange, Allocation, Allocations, Figures, Mapping, MappingCall, MemoryUse, NodeId, PAGE_SIZE, Quantity,
    RegionSnapshot, StackFrame, SystemMemory, TargetId,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::columns::{self, RowBuilder};
use crate::id::StoredId;
use crate::message::{Segment, frame};
use crate::table::Build;
use crate::target::{mapping_columns, region_columns};
use crate::{
    Activity, AnonymousMemory, Cgroup, Contents, Cost, Header, Host, Limit, RecordError, Recording, SnapshotRecord,
    Surroundings, activity, allocations, schema, survey,
};

const ALL: Contents = Contents { activities: true, surveys: true, live: true, marks: true, allocations: true };

pub(crate) fn header() -> Header {
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
            id: "0123".into(),
            boot_id: "4567".into(),
            name: "h".into(),
            kernel: "6".into(),
            architecture: "x86_64".into(),
            cpus: 1,
            memory_bytes: 1 << 30,
        },
        ..Header::default()
    }
}

fn region(pages: std::ops::Range<u64>, nr_accesses: u32) -> RegionSnapshot {
    let range = AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE).unwrap();
    RegionSnapshot { nr_accesses, nr_samples: 20, age: 3, ..RegionSnapshot::new(range) }
}

/// A message's flatbuffer and body, not framed yet.
type Parts = (Vec<u8>, Vec<u8>);

fn options(compression: Option<CompressionType>) -> IpcWriteOptions {
    IpcWriteOptions::try_new(8, false, MetadataVersion::V5).unwrap().try_with_compression(compression).unwrap()
}

fn schema_parts() -> Parts {
    let mut dictionaries = DictionaryTracker::new(true);
    let schema = schema::schema(ALL, &header(), true).unwrap();
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
fn batch(rows: &[columns::Row]) -> RecordBatch {
    let mut builder = RowBuilder::default();
    rows.iter().for_each(|row| builder.push(row));
    builder.finish(None).unwrap().as_struct().into()
}

fn target(pid: u32) -> TargetId {
    TargetId::process(pid, Duration::from_nanos(1))
}

/// A row of target 1 with all that its first row needs.
fn first_row(regions: &[RegionSnapshot], mappings: &[Mapping]) -> columns::Row {
    columns::Row {
        aggregation_ns: Some(1),
        samples: Some(20),
        id: Some(StoredId::new(target(1), true).column()),
        target: Some(columns::Target {
            command: "a command".into(),
            started_unix_ns: 1,
            cgroup: None,
            inner_pid: None,
        }),
        mappings: Some(mapping_columns(target(1), mappings)),
        snapshot: Some(1),
        regions: Some(region_columns(regions, 1)),
        ..columns::Row::new(columns::TARGET, 1)
    }
}

fn activity_row(activity: &Activity) -> columns::Row {
    columns::Row { activity: Some(activity::to_columns(activity, true)), ..columns::Row::new(columns::ACTIVITY, 1) }
}

/// A row of a survey of target 1 whose mappings another row says. The first mapping has 2 present pages.
fn survey_row() -> columns::Row {
    let sums = |bytes: u64| PageSums {
        figures: Figures { present: 2 * bytes, touched: bytes, ..Figures::default() },
        within: [bytes; WINDOWS.len()],
        ..PageSums::default()
    };
    let block = |nth: u64| BlockSums {
        pages: Figures { present: 5, touched: 3, swapped: Quantity::exact(1), ..Figures::default() },
        start: nth * BLOCK_SIZE,
        ..BlockSums::default()
    };
    let mappings: Arc<[Mapping]> = [Mapping::anonymous(AddrRange::new(0, BLOCK_SIZE).unwrap())].into();
    let found = TargetSurvey {
        id: target(1),
        by_mapping: vec![MappingSums::new(0, &mappings, sums(PAGE_SIZE)).unwrap()],
        mappings,
        by_block: vec![block(1), block(4)].into(),
        by_node: vec![NodeSums { node: NodeId(0), sums: sums(PAGE_SIZE) }],
    };
    let taken = SurveySnapshot { time: Duration::from_nanos(2), ..SurveySnapshot::default() };
    let cost = (SurveyCost { reads: 5, clears: 2 }, Some(Duration::from_nanos(7)));
    columns::Row {
        id: Some(StoredId::new(target(1), true).column()),
        survey: Some(survey::to_column(&taken, &found, Some(cost))),
        ..columns::Row::new(columns::SURVEY, 2)
    }
}

fn mark_row(time_ns: u64, text: &str) -> columns::Row {
    columns::Row { mark: Some(columns::Mark { time_ns, text: text.into() }), ..columns::Row::new(columns::MARK, 3) }
}

fn missed_row(time_ns: u64, kind: &str) -> columns::Row {
    let missed = columns::Missed { time_ns, kind: kind.into(), count: 2 };
    columns::Row { missed: Some(missed), ..columns::Row::new(columns::MISSED, 3) }
}

/// A row with a call of target 1 and its stack.
fn allocations_row() -> columns::Row {
    let frame = StackFrame { function: Some("f".into()), module: None, offset: 1 };
    let call = Allocation {
        time: Duration::from_nanos(2),
        target: target(1),
        call: MappingCall::Mmap,
        range: region(1..3, 0).range,
        stack: Some(0),
    };
    let found =
        Allocations { time: Duration::from_nanos(2), stacks: vec![(0, [frame].into())], calls: vec![call], lost: 0 };
    let column = allocations::to_columns(&found, true);
    columns::Row { allocations: Some(column), ..columns::Row::new(columns::ALLOCATIONS, 2) }
}

fn some_batch() -> RecordBatch {
    let mapping = |at: u64| Mapping { name: "[heap]".into(), ..Mapping::anonymous(region(at..at + 3, 0).range) };
    let regions: Vec<_> = (0..40).map(|i| region(i * 2..i * 2 + 1, 5)).collect();
    let cost = Cost { rounds: 20, ..Cost::default() };
    let first = columns::Row { cost: Some(cost), ..first_row(&regions, &[mapping(1), mapping(9)]) };
    let next = |time_ns| columns::Row { time_ns, target: None, mappings: None, cost: None, ..first.clone() };
    let idle = Activity { schemes: Vec::new(), memory: Vec::new(), ..some_activity() };
    let at = |time_ns, activity| columns::Row { time_ns, ..activity_row(activity) };
    let surveyed = columns::Row { mappings: Some(mapping_columns(target(1), &[mapping(1)])), ..survey_row() };
    let rows = [first.clone(), next(2), at(2, &some_activity()), surveyed, allocations_row(), next(3), at(3, &idle)];
    batch(&[&rows[..], &[survey_row(), mark_row(4, "go"), missed_row(4, "surveys"), allocations_row()]].concat())
}

fn surroundings() -> Surroundings {
    Surroundings {
        transparent_huge_pages: Some("madvise".into()),
        anonymous: Some(AnonymousMemory { bytes: 1, huge_bytes: None }),
        cgroup: Some(Cgroup { lowest_limit: Some(Limit::default()), ..Cgroup::default() }),
    }
}

fn some_activity() -> Activity {
    let report = |name: &str, quota: Option<u64>, goal_score| Report {
        name: name.into(),
        action: Action::PageOut.into(),
        awake: quota.is_some(),
        quota,
        goal_score,
        quota_share: goal_score,
        total: Statistics {
            refusals: vec![
                RefusalCount {
                    refusal: RefusalReason::Busy.with_code(11),
                    unknown_reason: None,
                    regions: 1,
                    bytes: 4096,
                },
                RefusalCount { refusal: RefusalReason::NoMemory.into(), unknown_reason: None, regions: 2, bytes: 8192 },
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
        major_faults: Some(1),
        compressed_growth: Some(2),
        surroundings: Some(surroundings()),
    }
}

/// Reads a recording of these messages.
fn read(directory: &Path, messages: &[Parts]) -> Result<(Vec<SnapshotRecord>, Vec<Activity>), RecordError> {
    let bytes: Vec<u8> =
        messages.iter().flat_map(|(flatbuffer, body)| frame(flatbuffer, body, Segment::default()).unwrap()).collect();
    let path = directory.join("a.rec");
    std::fs::write(&path, bytes).unwrap();
    let recording = Recording::open(&path)?;
    let activities = recording.activities().collect::<Result<_, _>>();
    recording.surveys().collect::<Result<Vec<_>, _>>()?;
    recording.marks().collect::<Result<Vec<_>, _>>()?;
    recording.allocations().collect::<Result<Vec<_>, _>>()?;
    recording.missed().collect::<Result<Vec<_>, _>>()?;
    Ok((recording.snapshots().collect::<Result<_, _>>()?, activities?))
}

/// The reason for which a batch of these rows is refused.
fn refusal(rows: &[columns::Row]) -> String {
    let directory = tempfile::tempdir().unwrap();
    match read(directory.path(), &[schema_parts(), batch_parts(&batch(rows), None)]) {
        Err(RecordError::Damaged { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_that_break_the_rules_are_refused() {
    let good = columns::Row { time_ns: 5, ..first_row(&[], &[]) };
    let overlap = [region(1..3, 0), region(2..4, 0)];
    let too_many = [region(1..3, 21)];
    let unobservable = [RegionSnapshot { nr_unobservable: 21, ..region(1..3, 0) }];
    let mapping = Mapping::anonymous(region(1..3, 0).range);
    let twice = [mapping.clone(), mapping];
    let sampled_too_often = [RegionSnapshot { nr_samples: 21, ..region(1..3, 0) }];
    let no_letters = columns::Mapping { permissions: "rwxx".into(), ..mapping_columns(target(1), &twice)[0].clone() };
    let no_pid = columns::Id { pid: None, ..StoredId::new(target(1), true).column() };

    let with_regions = |regions: &[RegionSnapshot]| refusal(&[first_row(regions, &[])]);
    assert_eq!(with_regions(&overlap), "a range of addresses is empty or reversed");
    assert_eq!(with_regions(&too_many), "a region has more accesses than there are samples");
    assert_eq!(with_regions(&unobservable), "a region has more unobservable samples than there are samples");
    assert_eq!(with_regions(&sampled_too_often), "a region has more samples taken than there are samples");
    assert_eq!(refusal(&[first_row(&[], &twice)]), "mappings are out of order or overlap");
    for (row, reason) in [
        (columns::Row { target: None, ..good.clone() }, "the first row of a target does not say what it is"),
        (columns::Row { mappings: None, ..good.clone() }, "the first row of a target has no mappings"),
        (columns::Row { regions: None, ..good.clone() }, "the row of a target has no regions"),
        (columns::Row { samples: None, ..good.clone() }, "the row of a target has no number of samples"),
        (columns::Row { aggregation_ns: None, ..good.clone() }, "the row of a target has no aggregation interval"),
        (columns::Row { id: None, ..good.clone() }, "the row of a target has no identity"),
        (columns::Row { id: Some(no_pid), ..good.clone() }, "a process has no pid"),
        (
            columns::Row { mappings: Some(vec![no_letters]), ..good.clone() },
            "the permissions of a mapping are not four letters such as rw-p",
        ),
        (columns::Row::new(columns::ACTIVITY, 5), "the row of an activity has none"),
    ] {
        assert_eq!(refusal(&[row]), reason);
    }
    assert_eq!(refusal(&[good.clone(), columns::Row { time_ns: 4, ..good }]), "time goes backwards");
}

#[test]
fn marks_that_break_the_rules_are_refused() {
    assert_eq!(refusal(&[columns::Row { mark: None, ..mark_row(1, "a") }]), "the row of a mark has none");
    assert_eq!(refusal(&[mark_row(1, " ")]), "a mark has no text");
    assert_eq!(refusal(&[mark_row(2, "a"), mark_row(1, "b")]), "the time of marks goes backwards");
}

#[test]
fn rows_of_what_is_missing_that_break_the_rules_are_refused() {
    let empty = columns::Row { missed: None, ..missed_row(1, "marks") };
    assert_eq!(refusal(&[empty]), "the row of what is missing has nothing");
    let backwards = [missed_row(2, "of a later version"), missed_row(1, "marks")];
    assert_eq!(refusal(&backwards), "the time of what is missing goes backwards");
}

#[test]
fn surveys_that_break_the_rules_are_refused() {
    let mapping = Mapping::anonymous(region(1..4, 0).range);
    let refused = |change: &dyn Fn(&mut columns::Survey)| {
        let mut row = survey_row();
        change(row.survey.as_mut().unwrap());
        refusal(&[first_row(&[], std::slice::from_ref(&mapping)), row])
    };
    let larger = "a part of a survey's present bytes is more than all of them";
    assert_eq!(refused(&|found| found.windows_ns.clear()), "a survey has no windows");
    assert_eq!(refused(&|found| found.windows_ns[1] = 1), "the windows of a survey are out of order");
    assert_eq!(refused(&|found| found.windows_ns.truncate(9)), "a survey has more or fewer sums than windows");
    assert_eq!(refused(&|found| found.mappings[0].mapping = 1), "a survey has a mapping that is not there");
    let too_large = "a survey has more present bytes in a mapping than its size";
    assert_eq!(refused(&|found| found.mappings[0].sums.figures.present_bytes = u64::MAX), too_large);
    assert_eq!(refused(&|found| found.mappings[0].sums.figures.unknown_bytes = u64::MAX), larger);
    let too_much = "a survey has more bytes of a mapping in memory and in swap than its size";
    assert_eq!(refused(&|found| found.mappings[0].sums.figures.swapped_bytes = Some(u64::MAX)), too_much);
    assert_eq!(refused(&|found| found.within_bytes[9] = 3 * PAGE_SIZE), larger);
    assert_eq!(refused(&|found| found.within_bytes.truncate(9)), "a survey has more or fewer sums than windows");
    let twice = |found: &mut columns::Survey| {
        found.mappings.push(found.mappings[0].clone());
        found.within_bytes.extend_from_within(..);
    };
    assert_eq!(refused(&twice), "the mappings of a survey are out of order");
    let beyond = "a block of a survey is beyond all addresses";
    assert_eq!(refused(&|found| found.blocks[1].gap_blocks = u64::MAX), beyond);
    assert_eq!(refused(&|found| found.blocks[0].gap_blocks = 1 << 43), beyond);
    let pages = "a block of a survey has more pages than there are";
    assert_eq!(refused(&|found| found.blocks[0].present_pages = 513), pages);
    assert_eq!(refused(&|found| found.blocks[0].touched_pages = 6), pages);
    assert_eq!(refused(&|found| found.blocks[0].unobservable_pages = 6), pages);
    assert_eq!(refused(&|found| found.blocks[0].unknown_pages = 6), pages);

    assert_eq!(refusal(&[survey_row()]), "the first row of a target does not say what it is");
    let described = columns::Row { target: first_row(&[], &[]).target, ..survey_row() };
    assert_eq!(refusal(&[described]), "the first row of a target has no mappings");
    assert_eq!(refusal(&[columns::Row { survey: None, ..survey_row() }]), "the row of a survey has none");
    assert_eq!(refusal(&[columns::Row { id: None, ..survey_row() }]), "the row of a survey has no identity");
    let first = first_row(&[], &[mapping]);
    let mut early = survey_row();
    early.survey.as_mut().unwrap().time_ns = 1;
    assert_eq!(refusal(&[first, survey_row(), early]), "the time of surveys goes backwards");
}

#[test]
fn present_bytes_that_break_the_rules_are_refused() {
    let pages = |present, touched| {
        let pages = Figures { present, touched, ..Figures::default() };
        refusal(&[first_row(&[RegionSnapshot { pages: Some(pages), ..region(1..3, 0) }], &[])])
    };
    assert_eq!(pages(3 * PAGE_SIZE, 0), "a range of addresses is empty or reversed");
    assert_eq!(pages(PAGE_SIZE, PAGE_SIZE + 1), "a part of a region's present bytes is more than all of them");
    let pages = Figures { present: PAGE_SIZE, swapped: Quantity::exact(PAGE_SIZE + 1), ..Figures::default() };
    let row = first_row(&[RegionSnapshot { pages: Some(pages), ..region(1..3, 0) }], &[]);
    assert_eq!(refusal(&[row]), "a region has more bytes in memory and in swap than its size");
}

#[test]
fn calls_that_break_the_rules_are_refused() {
    let refused = |change: &dyn Fn(&mut columns::Allocations)| {
        let mut row = allocations_row();
        change(row.allocations.as_mut().unwrap());
        refusal(&[row])
    };
    assert_eq!(refused(&|found| found.calls[0].end = 1), "a range of addresses is empty or reversed");
    assert_eq!(refused(&|found| found.calls[0].id.pid = None), "a process has no pid");
    let none = columns::Row { allocations: None, ..allocations_row() };
    assert_eq!(refusal(&[none]), "the row of calls has none");
    let mut early = allocations_row();
    early.allocations.as_mut().unwrap().time_ns = 1;
    assert_eq!(refusal(&[allocations_row(), early]), "the time of calls goes backwards");
}

#[test]
fn a_call_of_a_stack_or_of_a_kind_that_is_not_known_is_no_error() {
    let mut row = allocations_row();
    let found = row.allocations.as_mut().unwrap();
    found.calls.push(columns::Call { call: "shmat".into(), ..found.calls[0].clone() });
    found.calls[0].stack = Some(7);
    let directory = tempfile::tempdir().unwrap();
    read(directory.path(), &[schema_parts(), batch_parts(&batch(&[row]), None)]).unwrap();
    let recording = Recording::open(&directory.path().join("a.rec")).unwrap();
    let found: Vec<_> = recording.allocations().map(Result::unwrap).collect();
    assert_eq!(found[0].calls.iter().map(|call| call.stack).collect::<Vec<_>>(), [None]);
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
    assert!(error.to_string().contains("a column has more or fewer offsets than values"), "{error}");
}

/// Equal values compress to next to nothing, and all of them are taken into memory.
#[test]
fn a_batch_that_expands_too_much_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let bomb = batch_parts(&batch(&[first_row(&vec![region(1..3, 1); 1 << 20], &[])]), Some(CompressionType::ZSTD));
    assert!(bomb.1.len() < 100_000, "{}", bomb.1.len());
    let error = read(directory.path(), &[schema_parts(), bomb]).unwrap_err();
    assert!(matches!(&error, RecordError::TooLarge { part: "a batch", .. }), "{error}");
    let recording = Recording::open_within(&directory.path().join("a.rec"), Some(1 << 30)).unwrap();
    let error = recording.snapshots().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("a range of addresses is empty or reversed"), "{error}");
}

#[test]
fn activities_that_break_the_rules_are_refused() {
    let row = activity_row;
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
    let (half, none) = (0.5_f64.to_le_bytes(), f64::NAN.to_le_bytes());
    assert_eq!(changed(&half, &none), "the score of a scheme's goals is not a number");
    // The starts of the first three regions: the first one's becomes its end.
    let [first, second, third] = [4096_u64, 8192, 12288].map(u64::to_le_bytes);
    let (starts, empty) = ([first, second, third].concat(), [second, second, third].concat());
    assert_eq!(changed(&starts, &empty), "a range of addresses is empty or reversed");
}

/// A batch of a later version: more columns, rows of another kind, a target of another type, and columns that are
/// missing.
#[test]
fn what_a_later_version_adds_is_passed_over() {
    let census = columns::Row::new("census", 1);
    let other_id = columns::Id { kind: "guest".into(), ..StoredId::new(target(1), true).column() };
    let other = columns::Row { id: Some(other_id.clone()), ..first_row(&[region(1..3, 1)], &[]) };
    let mut acted = activity_row(&some_activity());
    if let Some(activity) = &mut acted.activity {
        activity.memory[0].id = other_id;
        activity.schemes[0].action = columns::Action { name: "melt".into(), target_node: Some(3) };
        activity.schemes[0].total.refusals[0].reason = "too_warm".into();
    }
    let batch = batch(&[first_row(&[region(1..3, 1)], &[]), census, other, acted]);

    let more: ArrayRef = Arc::new(UInt64Array::from(vec![Some(7), None, None, None]));
    let lists: ArrayRef = Arc::new(BinaryArray::from(vec![&b"x"[..]; 4]));
    let mut named: Vec<(String, ArrayRef)> = vec![("blocks".into(), lists)];
    named.extend(batch.schema().fields().iter().zip(batch.columns()).map(|(f, c)| (f.name().clone(), Arc::clone(c))));
    named.push(("present_bytes".into(), more));
    named.retain(|(name, _)| name != "cost");
    let batch = RecordBatch::try_from_iter_with_nullable(named.into_iter().map(|(n, c)| (n, c, true))).unwrap();

    let metadata = schema::schema(ALL, &header(), true).unwrap().metadata;
    let mut dictionaries = DictionaryTracker::new(true);
    let schema = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        &batch.schema().as_ref().clone().with_metadata(metadata),
        &mut dictionaries,
        &options(None),
    );
    let directory = tempfile::tempdir().unwrap();
    let messages = [(schema.ipc_message, schema.arrow_data), batch_parts(&batch, Some(CompressionType::ZSTD))];
    let (snapshots, activities) = read(directory.path(), &messages).unwrap();
    assert_eq!(snapshots.len(), 1);
    assert_eq!(snapshots[0].snapshot.targets.len(), 1);
    assert_eq!(snapshots[0].cost, None);
    let [activity] = &activities[..] else { panic!("{activities:?}") };
    assert_eq!(activity.memory.len(), 1);
    let report = &activity.schemes[0];
    assert_eq!((&*report.action.name, report.action.target_node), ("melt", Some(NodeId(3))));
    let refused = &report.total.refusals[0];
    assert_eq!(refused.refusal, RefusalReason::Other.with_code(11));
    assert_eq!(refused.unknown_reason.as_deref(), Some("too_warm"));
    // What is not known is written again as it was.
    assert_eq!(activity::to_columns(activity, true).schemes[0].action.name, "melt".into());
    assert_eq!(activity::to_columns(activity, true).schemes[0].total.refusals[0].reason, "too_warm".into());
}

#[test]
fn columns_of_another_type_or_missing_ones_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut Vec<Field>)| {
        let schema = schema::schema(ALL, &header(), true).unwrap();
        let mut fields: Vec<Field> = schema.fields().iter().map(|field| Field::clone(field)).collect();
        change(&mut fields);
        let schema = Schema::new_with_metadata(fields, schema.metadata);
        let mut dictionaries = DictionaryTracker::new(true);
        let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            &schema,
            &mut dictionaries,
            &options(None),
        );
        match read(directory.path(), &[(encoded.ipc_message, encoded.arrow_data)]) {
            Err(RecordError::Damaged { at: 0, reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&|fields| drop(fields.remove(0))), "a column is missing");
    let other_type = "a column has another type than the format says";
    assert_eq!(refused(&|fields| fields[1] = Field::new("time_ns", DataType::Int64, false)), other_type);
    assert_eq!(refused(&|fields| fields[8] = Field::new("regions", DataType::Utf8, true)), other_type);
    let large = Field::new("more", DataType::LargeUtf8, true);
    assert_eq!(refused(&|fields| fields.push(large.clone())), "it has a column of a type that recordings do not use");
    let small = Field::new("more", DataType::UInt8, true);
    assert_eq!(refused(&|fields| fields.extend(vec![small.clone(); 5000])), "it has too many columns");
}

#[test]
fn a_snapshot_ends_where_a_target_comes_again() {
    let directory = tempfile::tempdir().unwrap();
    let row = first_row(&[region(1..3, 1)], &[]);
    let (snapshots, _) =
        read(directory.path(), &[schema_parts(), batch_parts(&batch(&[row.clone(), row]), None)]).unwrap();
    assert_eq!(snapshots.len(), 2);
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
    #![proptest_config(Config {
        cases: 1000,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..Config::default()
    })]

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
