//! Tests of reports on made results.

use super::*;
use crate::Machine;
use crate::recorded::Recorded;
use crate::results::tests::session;
use crate::run::Isotherm;

const FAULT: Duration = Duration::from_micros(15);

fn run(workload: &str, configuration: Configuration, nth: u32, seconds: f64, mib: f64) -> Run {
    let bytes = mib * 1_048_576.0;
    let isotherm =
        (configuration == Configuration::Rec).then_some(Isotherm { cpu_seconds: 0.1, rss: 1e7, rss_max: 1e7 });
    let recorded = isotherm.map(|_| Recorded { working_set: Some(1e6), ..Recorded::default() });
    Run {
        workload: workload.into(),
        configuration,
        nth,
        seconds,
        command_seconds: seconds,
        rss: bytes,
        system: bytes * 1.1,
        isotherm,
        recorded,
        ..Run::default()
    }
}

fn results(place: &std::path::Path) -> Results {
    use Configuration::{Ethp, Orig, Rec, Thp};
    let why = "it needs a display".to_owned();
    let left_out = vec![LeftOut { workload: "c".into(), configuration: None, why }];
    let mut results = Results::begin(place, false, Session { left_out, ..session() }).unwrap();
    for nth in 1..=3 {
        let noise = f64::from(nth) * 0.01;
        for (workload, seconds, mib) in [("a", 10.0, 100.0), ("splash2x/fft", 30.0, 300.0)] {
            results.add(run(workload, Orig, nth, seconds + noise, mib)).unwrap();
            results.add(run(workload, Rec, nth, (seconds + noise) * 1.002, mib)).unwrap();
            results.add(run(workload, Thp, nth, seconds * 0.9, mib * 1.2)).unwrap();
            results.add(run(workload, Ethp, nth, seconds * 0.92, mib * 1.03)).unwrap();
        }
    }
    let failed = Some("<it> ended".to_owned());
    results.add(Run { failed, nth: 4, ..run("a", Orig, 4, 0.0, 0.0) }).unwrap();
    results
}

fn written(rendering: Rendering, spread: bool) -> String {
    let place = tempfile::tempdir().unwrap();
    let results = results(place.path());
    let mut out = Vec::new();
    Report::new(&results, FAULT).unwrap().write(rendering, &results, Paper::V24, spread, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn tables_have_changes_totals_averages_and_the_papers_figures() {
    let place = tempfile::tempdir().unwrap();
    let report = Report::new(&results(place.path()), FAULT).unwrap();
    let runtime = &report.tables[0];
    let names: Vec<&str> = runtime.rows.iter().map(|row| &*row.name).collect();
    assert_eq!(names, ["a", "splash2x/fft", "c", "total", "average"]);
    assert_eq!(runtime.rows[2].reason.as_deref(), Some("it needs a display"));
    let change = |name, configuration| runtime.cell(name, configuration).unwrap().change.unwrap();
    let rec = change("total", Configuration::Rec);
    assert!((rec.percent - 0.2).abs() < 1e-6 && !rec.may_be_chance(), "{rec:?}");
    assert!((change("average", Configuration::Thp).percent + 10.1).abs() < 0.1);
    let fft = runtime.cell("splash2x/fft", Configuration::Thp).unwrap();
    assert!((fft.papers[&Paper::V24] + 23.04).abs() < 0.01, "{fft:?}");
    // Of the workloads that both have.
    let total = runtime.cell("total", Configuration::Thp).unwrap();
    assert!((total.papers[&Paper::V24] + 23.04).abs() < 0.01 && total.count == 2, "{total:?}");
    assert!(runtime.cell("a", Configuration::Thp).unwrap().papers.is_empty());
    assert_eq!(report.failed.len(), 1);
}

#[test]
fn sentences_say_what_the_schemes_remove_and_keep() {
    let place = tempfile::tempdir().unwrap();
    let said = Report::new(&results(place.path()), FAULT).unwrap().conclusions.join("\n");
    assert!(said.contains("removes 85 % of the memory that thp wastes"), "{said}");
    assert!(said.contains("of the time that thp saves") && said.contains("rec: runtime +0.20 %"), "{said}");
}

#[test]
fn where_processors_are_emulated_runtimes_are_modelled_from_page_faults() {
    let place = tempfile::tempdir().unwrap();
    let machine = Machine { processor: "QEMU TCG CPU version 2.5+".into(), ..session().machine };
    let mut results = Results::begin(place.path(), false, Session { machine, ..session() }).unwrap();
    for nth in 1..=2 {
        let with = |configuration, major_faults| Run { major_faults, ..run("a", configuration, nth, 10.0, 100.0) };
        results.add(with(Configuration::Orig, 1_000)).unwrap();
        results.add(with(Configuration::Prcl, 11_000)).unwrap();
    }
    let report = Report::new(&results, FAULT).unwrap();
    let modelled = |of: &Detail| (of.configuration, of.modelled_runtime_percent.map(|percent| percent.round()));
    let expected = [(Configuration::Orig, None), (Configuration::Prcl, Some(2.0))];
    assert_eq!(report.details.iter().map(modelled).collect::<Vec<_>>(), expected, "10,000 faults of 15 µs in 10 s");
    let said = report.conclusions.join("\n");
    assert!(said.contains("prcl, modelled: runtime +1.50 % on the mean, +1.50 % at worst (a)"), "{said}");
}

#[test]
fn each_format_has_the_figures_and_what_is_missing() {
    let text = written(Rendering::Text, false);
    assert!(text.contains("+0.20") && text.contains("c: it needs a display.") && !text.contains("stdev"), "{text}");
    assert!(written(Rendering::Text, true).contains("stdev"));
    let markdown = written(Rendering::Markdown, false);
    assert!(markdown.contains("## Runtime") && markdown.contains("| splash2x/fft "), "{markdown}");
    let csv = written(Rendering::Csv, false);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("table,workload,configuration,count,mean"), "{csv}");
    assert!(lines.iter().any(|line| line.starts_with("runtime_s,a,rec,3,10.04")), "{csv}");
    assert!(lines.iter().all(|line| line.matches(',').count() == lines[0].matches(',').count()), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&written(Rendering::Json, false)).unwrap();
    assert_eq!(json["tables"][0]["rows"][0]["cells"][0]["configuration"], "orig");
    assert!(json["tables"][0]["rows"][1]["cells"][2]["papers"]["v24"].as_f64().unwrap() < -20.0);
    let html = written(Rendering::Html, false);
    assert!(html.contains("<td>splash2x/fft</td>") && html.contains("&lt;it&gt; ended"), "{html}");
}

#[test]
fn a_round_in_which_the_memory_of_the_system_shrank_is_not_compared() {
    let place = tempfile::tempdir().unwrap();
    let mut results = results(place.path());
    let shrank = |configuration| Run { system: -1.0, nth: 4, ..run("a", configuration, 4, 10.0, 100.0) };
    results.add(shrank(Configuration::Orig)).unwrap();
    results.add(shrank(Configuration::Rec)).unwrap();
    let report = Report::new(&results, FAULT).unwrap();
    let [runtime, system, _] = &report.tables[..] else { panic!("{report:?}") };
    let change = |table: &Table| table.cell("a", Configuration::Rec).unwrap().change.unwrap();
    assert!(change(system).percent.abs() < 1e-6 && change(system).interval.is_some(), "{:?}", change(system));
    assert!(change(runtime).percent > 0.1);
    assert!(report.tables.iter().all(|table| table.cell("average", Configuration::Rec).is_some()));
}

#[test]
fn no_runs_are_no_report() {
    let place = tempfile::tempdir().unwrap();
    let results = Results::begin(place.path(), false, session()).unwrap();
    assert!(matches!(Report::new(&results, FAULT), Err(EvalError::NoResults(_))));
}
