//! Reports on recordings with surveys.

use std::time::Duration;

use isotherm_core::survey::{BlockSums, Kinds, MappingSums, PageSums, TargetSurvey, TotalSums, Unseen};
use isotherm_core::{AddrRange, Figures, MemoryUse, Permissions, Quantity, SystemMemory, TargetId};
use isotherm_record::Activity;
use isotherm_report::schemes::Schemes;
use isotherm_report::wss::{Basis, Wss};
use isotherm_report::{
    Colour, Format, Kind, Limits, Measure, Options, RegionOptions, ReportError, Selection, Terminal, colour, write,
};
use serde_json::{Value, json};

use crate::made::checked::{json_of, report, text};
use crate::made::{self, MIB, Made, Row, surveyed, with_heap_in_swap};

const SECOND: Duration = Duration::from_secs(1);

fn within(source: &Made, seconds: u64) -> Wss {
    Wss::new(source, &Selection::default(), Some(Duration::from_secs(seconds))).unwrap()
}

#[test]
fn the_working_set_is_what_was_touched_within_the_window() {
    let source = surveyed(20);
    let interval = Wss::new(&source, &Selection::default(), None).unwrap();
    assert_eq!((interval.basis, interval.window), (Basis::Survey, Duration::from_secs(1)));
    // The first survey cannot tell what was touched, so it does not count.
    assert_eq!(interval.percentiles().unwrap().0, [8, 8, 8, 8, 8, 16, 16].map(|mib| mib * MIB));
    let ten = within(&source, 10);
    assert_eq!(ten.settled().len(), 10);
    assert_eq!(ten.percentiles().unwrap().0[0], 8 * MIB);
    assert_eq!(ten.percentiles().unwrap().0[6], 16 * MIB);
    assert_eq!(ten.percentiles_of(|amount| amount.present_bytes).unwrap().median(), 64 * MIB);
    let none = within(&source, 60);
    assert!(ten.unknown().is_none() && none.unknown().is_some_and(|why| why.contains("a whole window of 60 s")));
    assert!(none.percentiles().is_none() && none.median().is_none() && none.settled().is_empty());
}

#[test]
fn a_part_has_the_start_of_the_run_only_if_it_begins_there() {
    let mut source = surveyed(20);
    source.surveys[0].survey.time = Duration::ZERO;
    let first = |start: u32| {
        let time = Some(SECOND * start..SECOND * 6);
        Wss::new(&source, &Selection { time, ..Selection::default() }, None).unwrap().points[0].time
    };
    assert_eq!([first(0), first(2)], [Duration::ZERO, SECOND * 3]);
}

#[test]
fn the_json_of_the_working_set_says_what_it_rests_on() {
    let source = surveyed(6);
    let wss = json_of(Kind::Wss, &source, &Options::default());
    assert_eq!((&wss["source"], &wss["window_ns"]), (&json!("survey"), &json!(1_000_000_000)));
    assert_eq!(
        wss["over_time"][4],
        json!({
            "time_ns": 5_000_000_000_u64, "pid": 1234, "bytes": 16 * MIB, "present_bytes": 64 * MIB,
            "unobservable_bytes": 4 * MIB, "unknown_bytes": 4 * MIB, "low_bytes": null, "high_bytes": null,
            "warm_up": false
        })
    );
    assert_eq!(wss["over_time"][0]["warm_up"], json!(true));
    assert_eq!(wss["total_over_time"][0]["warm_up"], json!(true));
    let sampled = json_of(Kind::Wss, &Made { surveys: vec![], ..surveyed(6) }, &Options::default());
    assert_eq!((&sampled["source"], &sampled["window_ns"]), (&json!("samples"), &json!(100_000_000)));
    let last = sampled["over_time"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["bytes"], &last["low_bytes"]), (&json!(0), &json!(0)));
    assert_eq!(last["present_bytes"], json!(64 * MIB));
    assert!(last["high_bytes"].as_u64() > Some(8 * MIB), "{last}");
}

/// Two targets, whose pages are all the same, and what is known of both together.
fn sharing(total: bool) -> Made {
    let mut source = surveyed(6);
    for record in &mut source.surveys {
        let survey = &mut record.survey;
        let second = TargetSurvey { id: made::process(77), ..survey.targets[0].clone() };
        survey.total = total.then(|| TotalSums { sums: second.total(), shared: 48 * MIB });
        survey.targets.push(second);
    }
    source
}

#[test]
fn what_several_targets_share_counts_once_in_the_total() {
    let wss = |source: &Made| json_of(Kind::Wss, source, &Options::default());
    let last = |wss: &Value, list: &str| wss[list].as_array().unwrap().last().unwrap().clone();
    let known = wss(&sharing(true));
    assert_eq!((&known["counted_once"], last(&known, "over_time")["pid"].clone()), (&json!(true), json!(77)));
    assert_eq!(last(&known, "total_over_time")["bytes"], last(&known, "over_time")["bytes"]);
    assert_eq!(last(&known, "total_over_time")["present_bytes"], json!(64 * MIB));
    let unknown = wss(&sharing(false));
    assert_eq!(unknown["counted_once"], json!(false));
    assert_eq!(last(&unknown, "total_over_time")["present_bytes"], json!(128 * MIB));
    // The total is of both targets. A part of them has no total.
    let address = AddrRange::new(0, 1 << 40);
    let part = Wss::new(&sharing(true), &Selection { address, ..Selection::default() }, None).unwrap();
    assert!(part.once.is_none());

    let summary = |source: &Made| json_of(Kind::Summary, source, &Options::default())["counted_once"].clone();
    let once = summary(&sharing(true));
    assert_eq!((&once["resident_bytes"], &once["shared_bytes"]), (&json!(64 * MIB), &json!(48 * MIB)));
    assert_eq!(once["swapped_bytes"], json!(12 * MIB));
    let mut unknown = sharing(true);
    unknown
        .surveys
        .iter_mut()
        .filter_map(|record| record.survey.total.as_mut())
        .for_each(|of| of.sums.figures.swapped = Quantity::unknown());
    assert_eq!(summary(&unknown)["swapped_bytes"], Value::Null);
    assert_eq!(summary(&sharing(false)), json!(null));
}

#[test]
fn the_summary_tells_the_memory_of_each_node() {
    let source = made::on_two_nodes(14);
    let summary = json_of(Kind::Summary, &source, &Options::default());
    let last = json!({
        "node": 2, "resident_bytes": 16 * MIB, "touched_bytes": summary["total"]["touched_bytes"].as_u64().unwrap() / 4,
        "idle_10s_bytes": summary["total"]["idle_10s_bytes"].as_u64().unwrap() / 4, "idle_1m_bytes": null,
        "idle_10m_bytes": null,
    });
    assert_eq!(summary["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(
        [&summary["nodes"][1], &summary["targets"][0]["nodes"][1], &summary["groups"][0]["nodes"][1]],
        [&last; 3]
    );
    // Of a part of the addresses, the nodes are not known; with one node, there is nothing to tell.
    let part = Selection { address: AddrRange::new(0, 1 << 47), ..Selection::default() };
    for (source, selection) in [(&source, part), (&surveyed(14), Selection::default())] {
        let mut out = vec![];
        write(Kind::Summary, Format::Json, source, &selection, &Options::default(), &mut out).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap()["nodes"], Value::Null);
    }
    assert!(report(Kind::Html, Format::Html, &source, &Options::default()).contains("memory nodes"));
    insta::assert_snapshot!("summary-nodes", text(Kind::Summary, &source, 110));
}

#[test]
fn memory_that_was_freed_lazily_and_the_reasons_of_the_unobservable_are_told() {
    let mut source = surveyed(14);
    assert!(!text(Kind::Summary, &source, 110).contains("lazily"));
    for survey in source.surveys.iter_mut().flat_map(|record| &mut record.survey.targets) {
        let unseen = [(Unseen::Locked, 3 * MIB), (Unseen::Guest, MIB)].into_iter().collect();
        survey.by_mapping[0].sums.kinds = Kinds { lazily_freed: 448 * MIB, unseen };
    }
    let summary = text(Kind::Summary, &source, 110);
    assert!(summary.contains("448 MiB freed lazily (MADV_FREE)"), "{summary}");
    assert!(summary.contains("Unobservable at the end: 3 MiB locked, 1 MiB of a guest"), "{summary}");
    for (kind, format) in [(Kind::Summary, Format::Svg), (Kind::Html, Format::Html)] {
        let shown = report(kind, format, &source, &Options::default());
        assert!(shown.contains("448 MiB freed lazily") && shown.contains("3 MiB locked"), "{kind:?}");
    }
    let kinds = &json_of(Kind::Summary, &source, &Options::default())["total"]["kinds"];
    assert_eq!(
        kinds,
        &json!({"lazily_freed_bytes": 448 * MIB, "unobservable_bytes": {"locked": 3 * MIB, "of a guest": MIB}})
    );
}

/// Two targets on two nodes that share all memory: the total counts it once.
#[test]
fn shared_memory_counts_once_on_its_node() {
    let mut source = made::on_two_nodes(6);
    for record in &mut source.surveys {
        let second = TargetSurvey { id: made::process(77), ..record.survey.targets[0].clone() };
        record.survey.targets.push(second);
    }
    let summary = json_of(Kind::Summary, &source, &Options::default());
    let node = |of: &Value| of["nodes"][0]["resident_bytes"].clone();
    assert_eq!([node(&summary), node(&summary["targets"][0])], [json!(48 * MIB), json!(48 * MIB)]);
    source.surveys.iter_mut().for_each(|record| record.survey.forget_total());
    assert_eq!(node(&json_of(Kind::Summary, &source, &Options::default())), json!(96 * MIB));
}

/// What the kernel says of the memory of these processes: resident and proportional MiB, once a second.
fn with_memory(mut source: Made, used: &[(u32, u64, u64)]) -> Made {
    source.activities = (1..=6)
        .map(|second| {
            let of = |&(pid, resident, proportional): &(u32, u64, u64)| {
                (
                    made::process(pid),
                    MemoryUse { resident: resident * MIB, proportional: Some(proportional * MIB), swapped: 0 },
                )
            };
            Activity {
                time: Duration::from_secs(second),
                schemes: vec![],
                memory: used.iter().map(of).collect(),
                system: SystemMemory::default(),
                ..Activity::default()
            }
        })
        .collect();
    source
}

#[test]
fn the_summary_has_the_proportional_memory_of_each_target() {
    let mut source = with_memory(sharing(true), &[(1234, 64, 40), (77, 64, 24)]);
    let second = |row: &Row| {
        let mut row = row.clone();
        row.target.id = made::process(77);
        // The first row has the cost of both.
        row.cost = None;
        row
    };
    source.rows = source.rows.iter().flat_map(|row| [row.clone(), second(row)]).collect();
    let summary = json_of(Kind::Summary, &source, &Options::default());
    let of = |nth: usize, key: &str| summary["targets"][nth][key].as_u64().unwrap() / MIB;
    assert_eq!([of(0, "proportional_bytes"), of(1, "proportional_bytes")], [40, 24]);
    // The surveys know more of swap than the kernel says here.
    assert_eq!([of(0, "resident_bytes"), of(0, "swapped_bytes")], [64, 12]);
    insta::assert_snapshot!("summary-two", text(Kind::Summary, &source, 110));
    let html = report(Kind::Heatmap, Format::Html, &source, &Options::default());
    assert!(html.contains(">PSS</th>") && html.contains("<td>40 MiB</td></tr>"));

    let alone = with_memory(surveyed(6), &[(1234, 64, 48)]);
    assert!(text(Kind::Summary, &alone, 110).contains("PSS, by the kernel: 48 MiB; "));
    // Without schemes, activities say nothing of what schemes did.
    let error = Schemes::new(&alone, &Selection::default()).unwrap_err();
    assert!(matches!(error, ReportError::NoSchemes), "{error}");
}

#[test]
fn a_window_needs_surveys() {
    let error = Wss::new(&made::phases(5), &Selection::default(), Some(Duration::from_secs(1))).unwrap_err();
    assert!(matches!(error, ReportError::NoSurveys { .. }) && error.to_string().contains("--survey auto"), "{error}");
}

#[test]
fn a_summary_is_of_present_memory() {
    let summary = json_of(Kind::Summary, &surveyed(40), &Options::default());
    let total = &summary["total"];
    for (name, mib) in [("resident_bytes", 64), ("idle_10s_bytes", 52), ("hot_bytes", 0)] {
        assert_eq!(total[name], json!(mib * MIB), "{name}");
    }
    assert_eq!((&total["idle_1m_bytes"], &total["proportional_bytes"]), (&Value::Null, &Value::Null));
    for of in [total, &summary["mappings"][0], &summary["targets"][0]] {
        assert_eq!((&of["absent_bytes"], &of["swapped_bytes"]), (&json!(20 * MIB), &json!(12 * MIB)));
    }
    assert!(total["unobservable_bytes"].as_u64() > Some(3 * MIB) && total["unknown_bytes"].as_u64() > Some(3 * MIB));
    // The first second is without a survey: all that is mapped counts then, as in any recording without surveys.
    let size = total["size_bytes"].as_u64().unwrap();
    assert!((64 * MIB..66 * MIB).contains(&size), "{size}");
    assert!(total["warm_bytes"].as_u64() > Some(7 * MIB));
}

#[test]
fn memory_that_is_wholly_in_swap_is_among_the_regions() {
    let source = with_heap_in_swap(6);
    let regions = json_of(Kind::Regions, &source, &Options::default());
    let outside = &regions["outside"];
    assert_eq!((&outside["swapped_bytes"], &outside["absent_bytes"]), (&json!(16 * MIB), &json!(8 * MIB)));
    let heap = json!({
        "start": 64 * MIB, "end": 88 * MIB, "swapped_bytes": 16 * MIB, "absent_bytes": 8 * MIB, "name": "[heap]"
    });
    assert_eq!(outside["swapped"], json!([heap]));
    // Nothing counts twice: the regions have the rest.
    let sum =
        |key: &str| regions["regions"].as_array().unwrap().iter().map(|of| of[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!([sum("present_bytes"), sum("swapped_bytes"), sum("absent_bytes")], [64, 12, 20].map(|mib| mib * MIB));

    let last = |options: RegionOptions| {
        let terminal = Terminal { columns: 130, ..Terminal::default() };
        let options =
            Options { terminal, regions: RegionOptions { at: Some(SECOND * 6), ..options }, ..Options::default() };
        report(Kind::Regions, Format::Text, &source, &options)
    };
    insta::assert_snapshot!("regions-swapped", last(RegionOptions::default()));
    // It has no rate and no age, but a size.
    let rate = Limits { max: Some(1.0), ..Limits::default() };
    assert!(!last(RegionOptions { rate, ..RegionOptions::default() }).contains("[heap]"));
    let size = Limits { min: Some(17 * MIB), ..Limits::default() };
    assert!(last(RegionOptions { size, ..RegionOptions::default() }).contains("[heap]"));

    let part = Selection { address: AddrRange::new(64 * MIB, 76 * MIB), ..Selection::default() };
    let mut out = vec![];
    write(Kind::Regions, Format::Json, &source, &part, &Options::default(), &mut out).unwrap();
    let last: Value = serde_json::from_str(String::from_utf8(out).unwrap().lines().last().unwrap()).unwrap();
    assert_eq!((&last["regions"], &last["outside"]["swapped"][0]["end"]), (&json!([]), &json!(76 * MIB)));

    let unknown = json_of(Kind::Regions, &without_swap(source), &Options::default());
    assert_eq!(unknown["outside"], json!({"swapped_bytes": null, "absent_bytes": 24 * MIB, "swapped": []}));
    assert_eq!(json_of(Kind::Regions, &made::phases(5), &Options::default())["outside"], Value::Null);
}

#[test]
fn heatmaps_show_what_is_in_swap_and_tell_what_is_absent() {
    let source = with_heap_in_swap(6);
    for measure in [Measure::Rate, Measure::Touched, Measure::IdleTime] {
        let of = |source: &Made| {
            let options = Options { measure: Some(measure), cells: Some((6, 50)), ..Options::default() };
            json_of(Kind::Heatmap, source, &options)["targets"][0].clone()
        };
        let target = of(&source);
        let bytes = ["resident_bytes", "swapped_bytes", "absent_bytes"].map(|key| target[key].as_u64().unwrap() / MIB);
        assert_eq!(bytes, [64, 28, 28], "{measure:?}");
        // The sum over the rows, weighted by their bytes, in the fourth second.
        let sum = |matrix: &str, name: &str| -> f64 {
            let rows = target["rows"].as_array().unwrap().iter().zip(target[matrix].as_array().unwrap());
            let named = rows.filter(|(row, _)| row["name"] == name);
            let bytes = |(row, cells): (&Value, &Value)| Some(row["bytes"].as_f64()? * cells[3].as_f64()?);
            named.map(|row| bytes(row).unwrap()).sum::<f64>() / MIB as f64
        };
        // Of the heap, the axis has the 16 MiB that are in swap. Before the first survey, all that is mapped counts.
        let absent = if measure == Measure::Rate { 8.0 } else { 0.0 };
        for (matrix, name, expected) in
            [("swapped", "[heap]", 16.0), ("swapped", "anonymous", 12.0), ("absent", "[heap]", absent)]
        {
            let found = sum(matrix, name);
            assert!((found - expected).abs() < 0.01, "{measure:?}: {found} of {expected} {matrix} in {name}");
        }

        let options = |colour| {
            let terminal = Terminal { columns: 100, rows: 24, colour, ..Terminal::default() };
            Options { measure: Some(measure), terminal, ..Options::default() }
        };
        let text = report(Kind::Heatmap, Format::Text, &source, &options(Colour::None));
        assert!(text.contains("(64 MiB in memory, 28 MiB in swap, 28 MiB absent at the end)"), "{text}");
        assert!(text.contains("ssssssss┐ [heap]") && text.contains("s: in swap"), "{text}");
        let [r, g, b] = colour::SWAPPED;
        let coloured = report(Kind::Heatmap, Format::Text, &source, &options(Colour::True));
        assert!(coloured.contains(&format!("2;{r};{g};{b}m")) && coloured.contains(" in swap"), "{coloured}");
        let svg = report(Kind::Heatmap, Format::Svg, &source, &options(Colour::None));
        assert!(svg.contains(">in swap</text>") && svg.contains(&colour::hex(colour::SWAPPED)));
        // Without such knowledge nothing is shown as in swap, and what may be there counts as absent.
        let unknown = of(&without_swap(surveyed(6)));
        assert_eq!((&unknown["swapped_bytes"], &unknown["absent_bytes"]), (&Value::Null, &json!(32 * MIB)));
        assert!(unknown["swapped"][0].as_array().unwrap().iter().all(Value::is_null));
    }
    let without = json_of(Kind::Heatmap, &made::phases(5), &Options::default());
    assert_eq!(
        (&without["targets"][0]["absent"], &without["targets"][0]["resident_bytes"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn pictures_of_regions_and_summaries_have_swapped_and_absent_bytes() {
    let source = with_heap_in_swap(6);
    let svg = |kind| report(kind, Format::Svg, &source, &Options::default());
    let (summary, regions) = (svg(Kind::Summary), svg(Kind::Regions));
    for part in [">swapped</text>", ">absent</text>", ">28 MiB</text>", "[heap]: 16 MiB in swap"] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    for part in
        ["64 MiB in memory, 28 MiB in swap, 28 MiB absent)", "[heap], 0 B in memory, 16 MiB in swap, 8 MiB absent"]
    {
        assert!(regions.contains(part), "{part}: {regions}");
    }
    // Without surveys there is nothing to tell.
    let plain = |kind| report(kind, Format::Svg, &made::phases(5), &Options::default());
    assert!(!plain(Kind::Summary).contains("absent") && !plain(Kind::Regions).contains("absent"));
}

#[test]
fn memory_that_is_wholly_in_swap_is_in_the_summary() {
    let source = with_heap_in_swap(20);
    let summary = json_of(Kind::Summary, &source, &Options::default());
    let heap = &summary["mappings"][1];
    assert_eq!((&heap["name"], &heap["size_bytes"]), (&json!("[heap]"), &json!(0)));
    assert_eq!((&heap["absent_bytes"], &heap["swapped_bytes"]), (&json!(8 * MIB), &json!(16 * MIB)));
    assert_eq!(summary["total"]["swapped_bytes"], json!(28 * MIB));
    assert!(text(Kind::Summary, &source, 110).contains("[heap]"));
}

/// The same, as if the surveys did not know what is in swap.
fn without_swap(mut source: Made) -> Made {
    for target in source.surveys.iter_mut().flat_map(|record| &mut record.survey.targets) {
        target.by_mapping.retain(|found| found.sums.figures.present > 0);
        target.by_mapping.iter_mut().for_each(|found| found.sums.figures.swapped = Quantity::unknown());
        let in_memory = target.by_block.iter().filter(|block| block.pages.present > 0);
        target.by_block = in_memory
            .map(|block| BlockSums { pages: Figures { swapped: Quantity::unknown(), ..block.pages }, ..block })
            .collect();
    }
    for region in source.rows.iter_mut().flat_map(|row| &mut row.target.regions) {
        region.pages = region.pages.map(|pages| Figures { swapped: Quantity::unknown(), ..pages });
    }
    source
}

#[test]
fn recordings_that_do_not_tell_of_swap_leave_it_blank() {
    let source = without_swap(surveyed(20));
    let summary = json_of(Kind::Summary, &source, &Options::default());
    let total = &summary["total"];
    assert_eq!((&total["absent_bytes"], &total["swapped_bytes"]), (&json!(32 * MIB), &Value::Null));
}

#[test]
fn space_without_permission_is_no_memory() {
    let mut source = made::phases(5);
    for row in &mut source.rows {
        let mappings = row.target.mappings.iter().cloned().enumerate().map(|(nth, mut mapping)| {
            if nth == 2 {
                mapping.permissions = Permissions::NONE;
            }
            mapping
        });
        row.target.mappings = mappings.collect();
    }
    let size =
        |source: &Made| json_of(Kind::Summary, source, &Options::default())["total"]["size_bytes"].as_u64().unwrap();
    assert_eq!(size(&made::phases(5)) - size(&source), 256 * MIB);
}

#[test]
fn resident_memory_without_permission_is_memory_and_second_views_are_not() {
    let summary = |source: &Made| json_of(Kind::Summary, source, &Options::default())["total"].clone();
    let before = summary(&surveyed(20));
    let mut source = surveyed(20);
    for record in &mut source.surveys {
        for target in &mut record.survey.targets {
            target.by_mapping[0].sums.mapped_again = 8 * MIB;
            let sums = PageSums::of(Figures { present: 16 * MIB, ..Figures::default() });
            target.by_mapping.extend(MappingSums::new(1, &target.mappings, sums));
        }
    }
    let after = summary(&source);
    let of = |summary: &Value, key: &str| summary[key].as_u64().unwrap();
    assert_eq!(of(&after, "resident_bytes"), of(&before, "resident_bytes") + 16 * MIB);
    assert_eq!((of(&after, "no_access_bytes"), of(&after, "mapped_again_bytes")), (16 * MIB, 8 * MIB));
    // Of the terabyte that is reserved, nothing else counts.
    assert_eq!(of(&after, "absent_bytes"), of(&before, "absent_bytes") - 8 * MIB);
    assert_eq!((&before["no_access_bytes"], &before["mapped_again_bytes"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_second_view_under_another_name_has_a_row() {
    let mut source = surveyed(14);
    for target in source.surveys.iter_mut().flat_map(|record| &mut record.survey.targets) {
        let mut mappings = target.mappings.to_vec();
        let start = mappings.last().unwrap().range.end() + (1 << 30);
        mappings.push(made::mapping(start, start + 8 * MIB, "/tmp/other-name"));
        let sums = PageSums { mapped_again: 8 * MIB, ..PageSums::default() };
        target.by_mapping.extend(MappingSums::new(mappings.len() - 1, &mappings, sums));
        target.mappings = mappings.into();
    }
    let summary = json_of(Kind::Summary, &source, &Options::default());
    let rows = summary["mappings"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "/tmp/other-name").unwrap();
    assert_eq!((&row["mapped_again_bytes"], &row["resident_bytes"]), (&json!(8 * MIB), &json!(0)));
    let again = rows.iter().filter_map(|row| row["mapped_again_bytes"].as_u64()).sum::<u64>();
    assert_eq!(summary["total"]["mapped_again_bytes"], again);
}

#[test]
fn texts_of_a_surveyed_recording() {
    let source = surveyed(12);
    for kind in [Kind::Wss, Kind::Summary] {
        insta::assert_snapshot!(kind.name(), text(kind, &source, 110));
    }
    let heatmap = |measure| {
        let terminal = Terminal { columns: 90, rows: 24, ..Terminal::default() };
        report(Kind::Heatmap, Format::Text, &source, &Options { terminal, measure, ..Options::default() })
    };
    insta::assert_snapshot!("idle-time", heatmap(Some(Measure::IdleTime)));
    assert_eq!(heatmap(None), heatmap(Some(Measure::Touched)));
    insta::assert_snapshot!("touched", heatmap(None));
    let regions = text(Kind::Regions, &source, 110);
    insta::assert_snapshot!(
        "regions",
        regions.split("\n\n").last().unwrap_or(&regions).to_owned() + regions.split("\n\n").nth(100).unwrap()
    );
}

#[test]
fn a_heatmap_in_json_says_what_it_measures() {
    let source = surveyed(6);
    let map = |measure| json_of(Kind::Heatmap, &source, &Options { measure, ..Options::default() });
    let touched = map(None);
    assert_eq!((&touched["measure"], &touched["targets"][0]["touched"][0][0]), (&json!("touched"), &json!(1.0)));
    let idle = map(Some(Measure::IdleTime));
    let last = idle["targets"][0]["idle_s"].as_array().unwrap().iter().rfind(|row| !row[4].is_null()).unwrap();
    assert_eq!(last[4], json!(5.0));
    assert_eq!(map(Some(Measure::Rate))["measure"], json!("rate"));
    let error = write(
        Kind::Heatmap,
        Format::Json,
        &made::phases(5),
        &Selection::default(),
        &Options { measure: Some(Measure::Touched), ..Options::default() },
        &mut vec![],
    );
    assert!(matches!(error, Err(ReportError::NotSurveyed { .. })));
}

#[test]
fn without_samples_pictures_show_what_was_touched_in_place_of_rates() {
    let mut source = surveyed(6);
    let picture = |source: &Made| report(Kind::Regions, Format::Svg, source, &Options::default());
    let page = |source: &Made| report(Kind::Html, Format::Html, source, &Options::default());
    assert!(picture(&source).contains("frequency in Hz") && page(&source).contains(r#""measure":"frequency""#));
    for row in &mut source.rows {
        row.target.regions.iter_mut().for_each(|region| region.nr_samples = 0);
    }
    let regions = picture(&source);
    assert!(regions.contains("touched share") && !regions.contains("frequency in Hz"), "{regions}");
    assert!(regions.contains("touched 8 MiB of 8 MiB") && regions.contains("touched 0 B of 48 MiB"), "{regions}");
    let page = page(&source);
    assert!(page.contains(r#""measure":"touched share""#) && page.contains("Touched share over time"), "{page}");
}

#[test]
fn physical_memory_has_no_absent_bytes() {
    let mut source = surveyed(6);
    let absent = |source: &Made| json_of(Kind::Summary, source, &Options::default())["total"]["absent_bytes"].clone();
    assert!(absent(&source).is_u64());
    for row in &mut source.rows {
        row.target.id = TargetId::PhysicalMemory;
    }
    for survey in &mut source.surveys {
        survey.survey.targets.iter_mut().for_each(|target| target.id = TargetId::PhysicalMemory);
    }
    assert_eq!(absent(&source), Value::Null);
}

#[test]
fn the_page_shows_the_working_set_by_window() {
    let page = report(Kind::Html, Format::Html, &surveyed(20), &Options::default());
    assert!(page.contains("touched within it, median") && page.contains("touched within 1 s, the survey interval"));
}
