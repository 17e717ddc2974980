//! Surveys are read as they were written.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{
    BLOCK_SIZE, BlockSums, Kinds, MappingSums, NodeSums, PageSums, SurveyCost, SurveySnapshot, TargetSurvey, TotalSums,
    Unseen, WINDOWS,
};
use isotherm_core::{Figures, Mapping, NodeId, PAGE_SIZE};
use isotherm_record::{Contents, Ending, Format, RecordError, Recorder, Recording, SurveyRecord, TargetInfo, convert};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common;

const SURVEYS: Contents = Contents { activities: false, surveys: true, live: true, marks: false, allocations: false };

#[test]
fn surveys_and_present_bytes_are_read_as_they_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let (rows, surveys) = common::record_with_surveys(&path, 60);
    assert_eq!(surveys.len(), 6);
    assert_eq!(common::read_surveys(&path).unwrap(), surveys);
    assert_eq!(common::read(&path).unwrap(), rows);
}

#[test]
fn a_recording_without_surveys_has_no_column_for_them_and_refuses_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 12);
    assert_eq!(common::read_surveys(&path).unwrap(), []);
    let bytes = std::fs::read(&path).unwrap();
    // The names of columns end with a zero byte. The cost of a snapshot has a column named `surveys`.
    assert!(!bytes.windows(7).any(|bytes| bytes == b"survey\0"));
    assert!(!bytes.windows(13).any(|bytes| bytes == b"present_bytes"));

    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    let error = recorder.write_survey(&common::survey(1)).unwrap_err();
    assert!(matches!(error, RecordError::Encode { .. }), "{error}");
    recorder.write(&common::snapshot_record(1)).unwrap();
    recorder.finish().unwrap();
    assert_eq!(common::read(&path).unwrap().len(), 2);
}

#[test]
fn without_sampling_surveys_stand_alone_and_are_handed_over_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with(&path, &common::header(), SURVEYS).unwrap();
    let written: Vec<_> = (1..=5).map(|i| common::survey(10 * i)).collect();
    written.iter().for_each(|survey| recorder.write_survey(survey).unwrap());
    // As if it were killed here.
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.ending(), Ending::Unfinished);
    let read: Vec<_> = recording.surveys().map(Result::unwrap).collect();
    assert_eq!(read, written);
    assert!(Arc::ptr_eq(&read[0].infos[0].1, &read[1].infos[0].1));
}

#[test]
fn a_survey_that_breaks_the_rules_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with(&path, &common::header(), SURVEYS).unwrap();
    recorder.write_survey(&common::survey(4)).unwrap();
    let mut too_large = common::survey(5);
    too_large.survey.targets[1].by_mapping[0].sums.figures.touched = 1 << 40;
    for wrong in [common::survey(3), too_large] {
        let error = recorder.write_survey(&wrong).unwrap_err();
        assert!(matches!(error, RecordError::Encode { .. }), "{error}");
    }
    recorder.write_survey(&common::survey(6)).unwrap();
    recorder.finish().unwrap();
    assert_eq!(common::read_surveys(&path).unwrap(), [4, 6].map(common::survey));
}

#[test]
fn snapshots_do_not_lean_on_surveys_which_older_readers_pass_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with(&path, &common::header(), SURVEYS).unwrap();
    // Mappings change with number 7, and each survey knows it before the snapshot.
    let mut written = vec![];
    for i in 1..=9 {
        recorder.write_survey(&common::survey(i)).unwrap();
        recorder.write(&common::snapshot_record(i)).unwrap();
        written.push((common::snapshot(i), common::cost(i)));
    }
    recorder.finish().unwrap();
    assert_eq!(common::read(&path).unwrap(), common::rows_of(&written));
    assert_eq!(common::read_surveys(&path).unwrap(), (1..=9).map(common::survey).collect::<Vec<_>>());
}

#[test]
fn a_recording_that_was_cut_has_the_surveys_before_the_cut() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let (_, written) = common::record_with_surveys(&path, 60);
    let bytes = std::fs::read(&path).unwrap();
    let mut most = 0;
    for len in (2500..bytes.len()).step_by(97) {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let Ok(read) = common::read_surveys(&path) else { continue };
        assert_eq!(read, written[..read.len()], "cut at {len}");
        assert!(read.len() >= most);
        most = read.len();
    }
    assert!(most >= 5, "{most}");
}

#[test]
fn a_converted_recording_keeps_surveys_and_present_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (path, output) = (directory.path().join("a.rec"), directory.path().join("b.rec"));
    let (rows, surveys) = common::record_with_surveys(&path, 30);
    convert(&Recording::open(&path).unwrap(), &output, Format::Recording).unwrap();
    assert_eq!(common::read(&output).unwrap(), rows);
    assert_eq!(common::read_surveys(&output).unwrap(), surveys);
}

#[test]
fn json_has_all_of_a_survey_and_csv_the_present_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (path, output) = (directory.path().join("a.rec"), directory.path().join("out"));
    common::record_with_surveys(&path, 30);
    let converted = |format| {
        convert(&Recording::open(&path).unwrap(), &output, format).unwrap();
        std::fs::read_to_string(&output).unwrap()
    };
    let document: Value = serde_json::from_str(&converted(Format::Json)).unwrap();
    assert_eq!(document["activities"], json!([]));
    let target = &document["surveys"][0];
    assert_eq!(target["id"], common::id_json(7));
    assert_eq!(target["mappings"].as_array().unwrap().len(), 3);
    let survey = &target["survey"];
    assert_eq!((&survey["time_ns"], &survey["interval_ns"]), (&json!(1_000_000_000), &json!(0)));
    assert_eq!(survey["cost"], json!({"reads": 18, "clears": 10, "cpu_ns": 10_000}));
    assert_eq!(survey["windows_ns"][10], json!(3_600_000_000_000_u64));
    assert_eq!(
        survey["mappings"][1],
        json!({
            "mapping": 1,
            "sums": {
                "figures": {
                    "present_bytes": 36864, "touched_bytes": 4096, "unobservable_bytes": 8192, "unknown_bytes": 4096,
                    "swapped_bytes": null, "swapped_is_least": false
                },
                "mapped_again_bytes": 12288,
                "kinds": {
                    "lazily_freed_bytes": 4096, "locked_bytes": 0, "shared_bytes": 0, "guest_bytes": 4096,
                    "device_bytes": 0, "io_uring_bytes": 0, "hugetlb_bytes": 0, "other_bytes": 0
                }
            }
        })
    );
    // Each number is the difference to the one before.
    let within = json!([0, 0, 4096, 0, 4096, 0, 4096, 0, 4096, 0, 4096]);
    assert_eq!(survey["within_bytes"].as_array().unwrap()[11..22], within.as_array().unwrap()[..]);
    assert_eq!(survey["mappings"][0]["sums"]["figures"]["swapped_bytes"], json!(4096));
    let block = json!({
        "gap_blocks": 0, "present_pages": 9, "touched_pages": 3, "used_cs": 0, "mean_before_cs": 100,
        "swapped_pages": 2, "unobservable_pages": 4, "unknown_pages": 0
    });
    assert_eq!(survey["blocks"][1], block);
    // Mappings stand only where they change, which is with each survey here.
    let again = document["surveys"].as_array().unwrap().iter().filter(|entry| entry["id"] == target["id"]).nth(1);
    assert_eq!(again.unwrap().get("target"), None);
    let region = &document["snapshots"][0]["targets"][0]["regions"];
    assert_eq!(region[0].get("present_bytes"), None);
    assert_eq!((&region[1]["present_bytes"], &region[1]["unknown_bytes"]), (&json!(4096), &json!(1)));
    assert_eq!((&region[1]["swapped_bytes"], &region[1]["absent_bytes"]), (&Value::Null, &json!(45056)));

    let csv = converted(Format::Csv);
    let lines: Vec<_> = csv.lines().skip(1).take(2).collect();
    assert!(lines[0].ends_with(",,,,,,,100000000,10.0"), "{lines:?}");
    assert!(lines[1].ends_with(",4096,10,20,1,,45056,100000000,0.0"), "{lines:?}");
}

/// What a survey may find in a target whose mappings are `mappings`.
fn target(pid: u32) -> impl Strategy<Value = TargetSurvey> {
    let sizes = prop::collection::vec((0_u64..50, 1_u64..50), 0..6);
    (sizes, any::<[u16; 4]>(), 0..20_u64).prop_map(move |(sizes, numbers, blocks)| {
        let mut at = 0;
        let mapping = |(gap, pages)| {
            let range = common::range(at + gap..at + gap + pages);
            at += gap + pages;
            Mapping::anonymous(range)
        };
        let mappings: Arc<[Mapping]> = sizes.into_iter().map(mapping).collect();
        let [a, b, c, d] = numbers.map(u64::from);
        let found = mappings.iter().enumerate().filter(|(i, _)| (a >> i) & 1 == 1).map(|(i, mapping)| {
            let present = b % (mapping.range.size() / PAGE_SIZE + 1) * PAGE_SIZE;
            let part = |of: u64| of % (present + 1);
            let within = std::array::from_fn(|window| part(c * window as u64));
            let swapped = (d % 2 == 0).then(|| a % (mapping.range.size() - present + 1));
            let unknown = part(c + d);
            let (touched, unobservable, mapped_again) = (part(c), part(d), a);
            let room = mapping.range.size() - present - swapped.unwrap_or(0);
            let reasons = Unseen::ALL.into_iter().zip([a, b, c, d, a, b, c]).filter(|(_, number)| number % 2 == 1);
            let kinds = Kinds {
                lazily_freed: b % (room + 1),
                unseen: reasons.map(|(reason, number)| (reason, number % (unobservable / 7 + 1))).collect(),
            };
            let sums = PageSums {
                figures: Figures { present, touched, unobservable, unknown, swapped: swapped.into() },
                kinds,
                mapped_again,
                within,
            };
            MappingSums::new(i, &mappings, sums).unwrap()
        });
        let block = |nth: u64| {
            let present = (a + nth) % 513;
            let touched = (b % (present + 1)) as u16;
            let swapped = (d % 2 == 0).then(|| (c % (513 - present)) as u16).into();
            let (start, present, idle) = (nth * nth * BLOCK_SIZE, present as u16, Duration::from_millis(10 * d));
            let part = |of: u64| (of % (u64::from(present) + 1)) as u16;
            let mean_idle = (d % 5 > 0).then(|| idle * 2);
            BlockSums {
                pages: Figures { present, touched, swapped, unobservable: part(d), unknown: part(c) },
                start,
                idle,
                mean_idle,
            }
        };
        TargetSurvey {
            id: common::process(pid),
            by_mapping: found.collect(),
            by_block: (0..blocks).map(block).collect(),
            by_node: by_node(b, c),
            mappings,
        }
    })
}

/// Sums on nodes 0 and 2, or on no node.
fn by_node(most: u64, part: u64) -> Vec<NodeSums> {
    let sums = |present: u64| PageSums::of(Figures { present, touched: part % (present + 1), ..Figures::default() });
    let nodes = [(0, most), (2, most / 2)].map(|(node, bytes)| NodeSums { node: NodeId(node), sums: sums(bytes) });
    nodes.into_iter().filter(|_| part.is_multiple_of(2)).collect()
}

/// Surveys of up to three targets that come and go, in the order of time.
fn surveys() -> impl Strategy<Value = Vec<SurveyRecord>> {
    let targets = prop::collection::vec((1_u32..4).prop_flat_map(target), 1..3);
    let survey = (targets, 1_u64..2_000_000_000, any::<u64>(), prop::option::of(any::<u64>()));
    prop::collection::vec(survey, 0..8).prop_map(|steps| {
        let mut time = Duration::ZERO;
        let survey = |(mut targets, step, reads, cpu): (Vec<TargetSurvey>, _, _, Option<u64>)| {
            targets.dedup_by_key(|target| target.id);
            time += Duration::from_nanos(step);
            let info = |id| Arc::new(TargetInfo { command: format!("{id} {}", step % 3), ..TargetInfo::default() });
            let infos = targets.iter().map(|target| (target.id, info(target.id))).collect();
            let cost = SurveyCost { reads, clears: step };
            let (touched, within, swapped) =
                (step / 2, [step / 3; WINDOWS.len()], reads.is_multiple_of(2).then_some(reads));
            let sums = PageSums {
                figures: Figures { present: step, touched, swapped: swapped.into(), ..Figures::default() },
                within,
                ..PageSums::default()
            };
            let total = cpu.map(|cpu| TotalSums { sums, shared: cpu % step });
            let by_node = total.map_or_else(Vec::new, |_| by_node(step, reads));
            let (interval, left_out) = (Duration::from_nanos(step), cpu.map(|cpu| cpu.to_string().into()));
            SurveyRecord {
                survey: SurveySnapshot { time, interval, cost, targets, total, by_node, left_out, by_party: vec![] },
                cpu: cpu.map(Duration::from_nanos),
                infos,
                ..SurveyRecord::default()
            }
        };
        steps.into_iter().map(survey).collect()
    })
}

proptest! {
    #![proptest_config(common::cases(64))]

    #[test]
    fn what_is_read_is_what_was_written(surveys in surveys(), every in 1_usize..4) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rec");
        let mut recorder = Recorder::create_with(&path, &common::header(), SURVEYS).unwrap();
        for (nth, survey) in surveys.iter().enumerate() {
            if nth % every == 0 {
                let mut record = common::snapshot_record(nth as u32 + 1);
                record.snapshot.targets.truncate(1);
                record.snapshot.targets[0].id = common::process(nth as u32 % 3 + 1);
                recorder.write(&record).unwrap();
            }
            recorder.write_survey(survey).unwrap();
        }
        recorder.finish().unwrap();
        prop_assert_eq!(common::read_surveys(&path).unwrap(), surveys);
    }
}
