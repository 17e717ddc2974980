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
        let (before, now) = of.days.split_at(of.days.len().saturating_sub(7));
        let mean = |days: &[i64]| days.iter().sum::<i64>().div_euclid(days.len() as i64 * 1440);
        assert_eq!(int(found, "mean_now_bytes"), mean(now));
        if before.is_empty() {
            assert!(found["grown_bytes"].is_null() && found["minutes_before"].is_null(), "{found:?}");
        } else {
            assert_eq!(int(found, "grown_bytes"), mean(now) - mean(before), "{name}");
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
            assert_eq!(int(found, "unused_bytes"), present - used);
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
    assert!(Dataset::new(&path).check(false).unwrap().wrong.is_empty());
    let answers = installed_or_skip!(ask("duckdb", &path));
    let truth = FLEET.truth();
    assert!(truth.services.keys().any(|name| name.contains("<i>")), "a name has markup");
    compare(&answers, &truth, &FLEET);
}

/// DataFusion with a dataset.
#[cfg(feature = "query")]
fn open(path: &Path) -> Result<isotherm_fleet::Engine, isotherm_fleet::FleetError> {
    isotherm_fleet::Engine::open(&Dataset::new(path), &isotherm_fleet::Days::default())
}

/// An answer of a query as it is written.
#[cfg(feature = "query")]
fn written(engine: &isotherm_fleet::Engine, sql: &str, format: isotherm_fleet::RowFormat) -> String {
    let mut out = Vec::new();
    engine.write(sql, format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[cfg(feature = "query")]
fn csv(engine: &isotherm_fleet::Engine, sql: &str) -> String {
    written(engine, sql, isotherm_fleet::RowFormat::Csv)
}

/// What DataFusion answers.
#[cfg(feature = "query")]
fn ask_datafusion(path: &Path) -> Answers {
    let engine = open(path).unwrap();
    let rows = |view: &isotherm_fleet::View| {
        let mut json = Vec::new();
        engine.write_view(view, None, isotherm_fleet::RowFormat::Json, &mut json).unwrap();
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

/// Their packages have 600 MB, so that `./dev test --all` alone has them.
#[cfg(feature = "query")]
#[test]
fn spark_with_two_workers_and_clickhouse_answer_as_datafusion_does() {
    // There is no week before a single day, and hosts whose identifier is a number, as of others, are among these.
    for fleet in [FLEET, Fleet { hosts: 12, days: 1, services: 2, ..FLEET }] {
        let (_directory, path) = made(&fleet);
        let known = ask_datafusion(&path);
        compare(&known, &fleet.truth(), &fleet);
        for engine in ["chdb", "spark"] {
            assert_eq!(installed_or_skip!(ask(engine, &path)), known, "{engine}");
        }
    }
}

#[cfg(feature = "query")]
#[test]
fn days_that_are_left_out_are_in_no_answer() {
    use isotherm_fleet::{Days, Engine};
    let fleet = Fleet { hosts: 1, days: 3, services: 1, ..FLEET };
    let (_directory, path) = made(&fleet);
    let minutes = |from, to| {
        let engine = Engine::open(&Dataset::new(&path), &Days::new(from, to).unwrap()).unwrap();
        csv(&engine, "SELECT COUNT(DISTINCT minute) AS n FROM fleet")
    };
    assert_eq!(minutes(Some("2024-10-05"), None), "n\n2880\n");
    assert_eq!(minutes(Some("2024-10-05"), Some("2024-10-05")), "n\n1440\n");
    assert_eq!(minutes(None, Some("2024-10-03")), "n\n0\n");
    let none = Engine::open(&Dataset::new(&path), &Days::new(None, Some("2024-10-03")).unwrap()).unwrap();
    let error = none.report(&VIEWS, 10).unwrap_err().to_string();
    assert!(error.ends_with("has no rows of these days"), "{error}");
    for (from, to, wrong) in [
        (Some("2024-10-32"), None, "2024-10-32 is no day"),
        (Some("' OR 1 = 1"), None, "' OR 1 = 1 is no day"),
        (Some("2024-10-06"), Some("2024-10-05"), "no day from 2024-10-06 to 2024-10-05"),
    ] {
        let error = Days::new(from, to).unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
}

#[cfg(feature = "query")]
#[test]
fn a_page_has_all_views_with_pictures_and_names_are_no_markup() {
    let (_directory, path) = made(&FLEET);
    let sheet = open(&path).unwrap().report(&VIEWS, 3).unwrap();
    let mut page = Vec::new();
    sheet.html(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("shop/&lt;i&gt;cart&lt;/i&gt; &amp; &quot;co&quot;") && !page.contains("<i>"), "{page}");
    assert_eq!((page.matches("<svg").count(), page.matches("<section").count()), (VIEWS.len(), VIEWS.len()));
    assert!(page.contains("The first 3 rows; --rows shows more."), "{page}");
    // The bars have the lengths of the figures.
    let idle = sheet.answers.iter().find(|answer| answer.name == "idle").unwrap();
    let (bars, truth) = (idle.bars.as_ref().unwrap(), FLEET.truth());
    let bar = &bars.bars[0];
    let (minutes, of) = (i64::from(FLEET.days) * 1440, &truth.services[&bar.name]);
    let lengths: Vec<i64> = bar.lengths.iter().map(|length| i64::try_from(*length).unwrap()).collect();
    assert_eq!(lengths[1..], [of.idle / minutes, of.unknown / minutes]);
    assert_eq!(lengths.iter().sum::<i64>(), of.present / minutes, "{bar:?}");
}

#[cfg(feature = "query")]
#[test]
fn json_escapes_what_acts_on_a_terminal() {
    let (_directory, path) = made(&Fleet { hosts: 1, days: 1, services: 1, ..FLEET });
    let engine = open(&path).unwrap();
    let sql = "SELECT 'a' || chr(155) || chr(27) || chr(8238) || chr(10) AS name";
    assert_eq!(written(&engine, sql, isotherm_fleet::RowFormat::Json), "{\"name\":\"a\\u009b\\u001b\\u202e\\n\"}\n");
    // An output that fails is told from a query that fails.
    let error = engine.write(sql, isotherm_fleet::RowFormat::Csv, &mut &mut [0_u8; 3][..]).unwrap_err();
    assert!(matches!(error, isotherm_fleet::FleetError::Write(_)), "{error}");
    let text = engine.ask(sql).unwrap().text(&isotherm_report::Terminal::default()).unwrap();
    assert_eq!(text, "name\na\\x9b\\x1b\\u{202e}\\n\n");
}

#[cfg(feature = "query")]
#[test]
fn a_query_changes_nothing_and_a_file_that_is_wrong_is_no_part_of_an_answer() {
    let small = Fleet { hosts: 2, days: 1, services: 2, ..FLEET };
    let (directory, path) = made(&small);
    let engine = open(&path).unwrap();
    let counted = csv(&engine, "SELECT COUNT(*) AS n FROM fleet WHERE date = '2024-10-04'");
    assert_eq!(counted, format!("n\n{}\n", 2 * 1440 * 5));
    let most = engine.ask_view(isotherm_fleet::view("idle").unwrap(), Some(1)).unwrap();
    assert_eq!(most.rows(), 1);
    assert_eq!(engine.ask("SELECT * FROM idle").unwrap().rows(), 3, "a view is a table");
    assert_eq!(csv(&engine, "SELECT service FROM fleet WHERE date < '2000-01-01'"), "service\n");
    let tables = csv(&engine, "SHOW TABLES");
    assert!(VIEWS.iter().all(|view| tables.contains(&format!(",{},", view.name))), "{tables}");
    let all = engine.ask("SELECT a.minute FROM fleet AS a CROSS JOIN fleet AS b").unwrap_err().to_string();
    assert!(all.contains("more than 100000 rows; use csv or json"), "{all}");
    let target = directory.path().join("out.csv");
    for sql in [
        format!("COPY fleet TO '{}'", target.display()),
        "DROP VIEW idle".into(),
        "CREATE TABLE mine AS SELECT 1".into(),
        "SET datafusion.execution.batch_size = 1".into(),
    ] {
        let error = engine.ask(&sql).unwrap_err().to_string();
        assert!(error.contains("not supported") && error.ends_with("(a query only reads)"), "{sql}: {error}");
    }
    assert!(!target.exists());
    for (sql, says) in [
        ("SELECT nothing FROM fleet", "No field named nothing"),
        ("SELECT * FROM nothing", "the tables are fleet"),
        ("SELEC 1", "found: SELEC at Line: 1"),
        ("SELECT CAST('x' AS BIGINT)", "Cannot cast string 'x'"),
    ] {
        let error = engine.ask(sql).unwrap_err().to_string();
        // What went wrong is said once.
        assert!(error.matches(says).count() == 1, "{error}");
    }

    let host = std::fs::read_dir(path.join("date=2024-10-04")).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(host.join("day.parquet"), host.join("quarter-03.parquet")).unwrap();
    let Err(error) = open(&path) else { panic!("rows are there twice") };
    assert!(error.to_string().contains("another file of this host and day has"), "{error}");
}
