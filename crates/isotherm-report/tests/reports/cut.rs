//! Reports on a part of a recording that was cut out say what reports on the whole say of that time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::Snapshot;
use isotherm_record::{Contents, Cut, Recorder, Recording, SnapshotRecord, cut};
use isotherm_report::diff::{Count, Diff, Side};
use isotherm_report::{Format, Kind, Options, Selection, write};

use crate::made::{self, Made};

/// Writes `made` to a file.
fn recorded(made: &Made, path: &Path) {
    let contents =
        Contents { activities: !made.activities.is_empty(), surveys: !made.surveys.is_empty(), ..Contents::default() };
    let mut recorder = Recorder::create_with(path, &made.header, contents).unwrap();
    made.activities.iter().for_each(|activity| recorder.write_activity(activity).unwrap());
    made.surveys.iter().for_each(|survey| recorder.write_survey(survey).unwrap());
    for row in &made.rows {
        let snapshot = Snapshot {
            time: row.time,
            aggregation: row.aggregation,
            samples: row.samples,
            targets: vec![row.target.clone()],
            ..Snapshot::default()
        };
        let infos = vec![(row.target.id, row.info.clone())].into();
        recorder.write(&SnapshotRecord { snapshot, cost: row.cost, infos, ..SnapshotRecord::default() }).unwrap();
    }
    recorder.finish().unwrap();
}

/// The report without the part that the header names.
fn report(kind: Kind, path: &Path, selection: &Selection) -> Result<String, String> {
    let mut out = vec![];
    let recording = Recording::open(path).unwrap();
    write(kind, Format::Json, &recording, selection, &Options::default(), &mut out).map_err(|e| e.to_string())?;
    let text = String::from_utf8(out).unwrap();
    let Some((before, after)) = text.split_once(",\"part\":{") else { return Ok(text) };
    Ok(before.to_owned() + after.split_once('}').unwrap().1)
}

fn part(path: &Path, selection: &Selection) -> PathBuf {
    let to = path.with_extension("part");
    let wanted = Cut { time: selection.time.clone(), ..Cut::default() };
    cut(&Recording::open(path).unwrap(), &wanted, &to).unwrap();
    to
}

fn between(from: f64, to: f64) -> Selection {
    let time = Duration::from_secs_f64(from)..Duration::from_secs_f64(to);
    Selection { time: Some(time), ..Selection::default() }
}

#[test]
fn reports_on_a_part_are_those_of_its_time() {
    let directory = tempfile::tempdir().unwrap();
    for (nth, made) in [made::surveyed(20), made::schemed(20), made::phases(60)].iter().enumerate() {
        let path = directory.path().join(format!("{nth}.rec"));
        recorded(made, &path);
        for (from, to) in [(2.0, 5.0), (1.55, 3.31), (0.0, 4.0), (3.0, 6.0)] {
            let selection = between(from, to);
            let cut = part(&path, &selection);
            for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Html) {
                let of_whole = report(kind, &path, &selection);
                assert_eq!(report(kind, &cut, &Selection::default()), of_whole, "{nth} {kind:?} {from} to {to}");
                // A longer time does not show what lies next to the part.
                assert_eq!(report(kind, &cut, &between(0.0, 100.0)), of_whole, "{nth} {kind:?} {from} to {to}");
            }
        }
    }
}

#[test]
fn a_part_is_compared_as_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    recorded(&made::phases(60), &path);
    let selection = between(2.0, 4.0);
    let (whole, cut) = (Recording::open(&path).unwrap(), Recording::open(&part(&path, &selection)).unwrap());
    let before = Side { name: "whole", source: &whole, selection: &selection };
    let after = Side { name: "part", source: &cut, selection: &Selection::default() };
    let diff = Diff::new(before, after, None).unwrap();
    for quantity in Count::ALL {
        let change = diff.total.of(quantity);
        assert_eq!(change.before, change.after, "{quantity:?}");
    }
}
