//! The views, asked of a made fleet whose answers are known.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_fleet::{Dataset, Fleet, Truth, VIEWS, generate};
use isotherm_testing::installed_or_skip;
use serde_json::{Map, Value};

/// The answer of each view, and its rows.
type Answers = BTreeMap<String, Vec<Map<String, Value>>>;

/// A fleet of more than a week, so that something can have grown. Two hosts have the same name.
const FLEET: Fleet = Fleet { hosts: 2, days: 8, services: 4, first_day: 20_000, seed: 7 };

/// Asks all views of a dataset.
fn ask(engine: &str, dataset: &Path) -> Result<Answers, String> {
    const MISSING: &str = "ModuleNotFoundError";
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var("ISOTHERM_PYTHON").unwrap_or_else(|_| "python3".into());
    let views = VIEWS.map(|view| directory.join("views").join(view.name).with_extension("sql"));
    let mut command = Command::new(&python);
    command.arg(directory.join("tests/views.py")).arg(engine).arg(dataset).args(views);
    let output = command.output().map_err(|error| format!("{python} cannot be run: {error}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains(MISSING) {
        return Err(format!("{python} has no module for {engine}"));
    }
    assert!(output.status.success(), "{error}");
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

/// The row of an answer with this value in this column.
fn row<'a>(answers: &'a Answers, view: &str, key: &[(&str, &str)]) -> &'a Map<String, Value> {
    let is = |row: &&Map<String, Value>| key.iter().all(|(column, value)| row[*column] == **value);
    answers[view].iter().find(is).unwrap_or_else(|| panic!("{view} has no {key:?}: {:?}", answers[view]))
}

fn int(row: &Map<String, Value>, column: &str) -> i64 {
    row[column].as_i64().unwrap_or_else(|| panic!("{column}: {row:?}"))
}

/// Compares the answers with the truth, to the byte.
fn compare(answers: &Answers, truth: &Truth, fleet: &Fleet) {
    let minutes = i64::from(fleet.days) * 1440;
    assert_eq!(answers["idle"].len(), truth.services.len());
    for (name, of) in &truth.services {
        let found = row(answers, "idle", &[("service", name)]);
        assert_eq!(int(found, "hosts"), i64::from(fleet.hosts));
        assert_eq!(int(found, "minutes"), minutes);
        assert_eq!(int(found, "present_byte_minutes"), of.present, "{name}");
        assert_eq!(int(found, "idle_byte_minutes"), of.idle, "{name}");
        assert_eq!(int(found, "unknown_byte_minutes"), of.unknown, "{name}");
        assert_eq!(int(found, "mean_present_bytes"), of.present.div_euclid(minutes));
        let found = row(answers, "grown", &[("service", name)]);
        let days = of.days.len();
        let (before, now): (i64, i64) = (of.days[..days - 7].iter().sum(), of.days[days - 7..].iter().sum());
        assert_eq!(int(found, "mean_now_bytes"), now.div_euclid(7 * 1440));
        if days > 7 {
            let before = before.div_euclid((days as i64 - 7) * 1440);
            assert_eq!(int(found, "grown_bytes"), now.div_euclid(7 * 1440) - before, "{name}");
        }
        let [hot, warm, cold] = of.classes;
        if hot + warm + cold > 0 {
            let found = row(answers, "fast_memory", &[("service", name)]);
            let total: i64 = of.accesses.iter().sum();
            assert_eq!(int(found, "accesses"), total);
            assert_eq!(int(found, "known_bytes"), (hot + warm + cold) / minutes);
            for (column, share) in [("bytes_for_90", 0.9), ("bytes_for_99", 0.99), ("bytes_for_99_9", 0.999)] {
                let enough = of.accesses[0] as f64 >= share * total as f64;
                assert_eq!(int(found, column), if enough { hot } else { hot + warm } / minutes, "{name} {column}");
            }
        }
    }
    for (service, hosts) in &truth.peaks {
        for (host, (present, used)) in hosts {
            let found = row(answers, "limits", &[("service", service), ("host", host)]);
            assert_eq!((int(found, "peak_present_bytes"), int(found, "peak_used_bytes")), (*present, *used));
            assert_eq!(int(found, "could_be_bytes"), (*used as f64 * 1.1).floor() as i64);
            assert!(found["limit_bytes"].is_null());
        }
    }
    assert_eq!(answers["packing"].len(), truth.hosts.len());
    let (mut freed, mut returned) = (0, 0);
    for (host, of) in &truth.hosts {
        let found = row(answers, "packing", &[("host", host)]);
        assert_eq!(found["host_name"], *of.name);
        assert_eq!(int(found, "memory_bytes"), of.memory);
        assert_eq!((int(found, "peak_present_bytes"), int(found, "peak_used_bytes")), of.peak);
        assert_eq!(int(found, "spare_bytes"), of.memory - of.peak.1);
        let found = row(answers, "cost", &[("host", host)]);
        assert_eq!((int(found, "cpu_ns"), int(found, "unknown_minutes")), (of.cpu_ns, 0));
        assert_eq!(int(found, "page_reads"), 60_000 * minutes);
        (freed, returned) = (freed + of.freed, returned + of.returned);
    }
    let found = row(answers, "schemes", &[("service", "machine")]);
    assert_eq!((int(found, "freed_bytes"), int(found, "returned_bytes")), (freed, returned));
    assert_eq!(found["returned_percent"], 25.0);
}

fn made(fleet: &Fleet) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet");
    generate(&Dataset::new(&path), fleet, &|_| {}).unwrap();
    (directory, path)
}

#[test]
fn duckdb_answers_each_view_as_it_is_known() {
    let (_directory, path) = made(&FLEET);
    assert!(Dataset::new(&path).check().unwrap().is_empty());
    let answers = installed_or_skip!(ask("duckdb", &path));
    let truth = FLEET.truth();
    assert!(truth.services.keys().any(|name| name.contains("<i>")), "a name has markup");
    compare(&answers, &truth, &FLEET);
}

/// What DataFusion answers.
#[cfg(feature = "query")]
fn ask_datafusion(path: &Path) -> Answers {
    let engine = isotherm_fleet::Engine::open(&Dataset::new(path)).unwrap();
    let rows = |view: &isotherm_fleet::View| {
        let json = engine.ask_view(view, None).unwrap().json().unwrap();
        serde_json::Deserializer::from_slice(&json).into_iter().collect::<Result<_, _>>().unwrap()
    };
    VIEWS.iter().map(|view| (view.name.to_owned(), rows(view))).collect()
}

#[cfg(feature = "query")]
#[test]
fn datafusion_answers_each_view_as_it_is_known_and_as_duckdb_does() {
    let (_directory, path) = made(&FLEET);
    let answers = ask_datafusion(&path);
    compare(&answers, &FLEET.truth(), &FLEET);
    // Rows, their order, names and nulls are the same.
    assert_eq!(answers, installed_or_skip!(ask("duckdb", &path)));
}

#[cfg(feature = "query")]
#[test]
fn a_query_changes_nothing_and_a_file_that_is_wrong_is_no_part_of_an_answer() {
    let small = Fleet { hosts: 2, days: 1, services: 2, ..FLEET };
    let (directory, path) = made(&small);
    let engine = isotherm_fleet::Engine::open(&Dataset::new(&path)).unwrap();
    let answer = engine.ask("SELECT COUNT(*) AS n FROM fleet WHERE date = '2024-10-04'").unwrap();
    assert_eq!(answer.csv().unwrap(), format!("n\n{}\n", 2 * 1440 * 5).into_bytes());
    let most = engine.ask_view(isotherm_fleet::view("idle").unwrap(), Some(1)).unwrap();
    assert_eq!(most.rows(), 1);
    assert_eq!(engine.ask("SELECT * FROM idle").unwrap().rows(), 3, "a view is a table");
    let none = engine.ask("SELECT service FROM fleet WHERE date < '2000-01-01'").unwrap();
    assert_eq!((none.rows(), none.csv().unwrap()), (0, b"service\n".to_vec()));
    let target = directory.path().join("out.csv");
    for sql in [
        format!("COPY fleet TO '{}'", target.display()),
        "DROP VIEW idle".into(),
        "CREATE TABLE mine AS SELECT 1".into(),
        "SET datafusion.execution.batch_size = 1".into(),
    ] {
        let error = engine.ask(&sql).unwrap_err();
        assert!(isotherm_core::chain(&error).contains("not supported"), "{sql}: {}", isotherm_core::chain(&error));
    }
    assert!(!target.exists());
    let error = engine.ask("SELECT nothing FROM fleet").unwrap_err();
    assert!(isotherm_core::chain(&error).contains("nothing"), "{error}");

    let host = std::fs::read_dir(path.join("date=2024-10-04")).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(host.join("day.parquet"), host.join("quarter-03.parquet")).unwrap();
    let Err(error) = isotherm_fleet::Engine::open(&Dataset::new(&path)) else { panic!("rows are there twice") };
    assert!(error.to_string().contains("another file of this host and day has"), "{error}");
}
