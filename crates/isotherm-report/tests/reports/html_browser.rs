//! The page in a browser: headless Chromium.
//!
//! Needs `chromium`, or the program that `ISOTHERM_CHROMIUM` names; without it, the tests are skipped. With
//! `ISOTHERM_SCREENSHOTS` set to a directory, the tests write screenshots to it.

use isotherm_testing::installed_or_skip;
use serde_json::json;

use crate::browser::open;
use crate::made;

/// The number of colours in a sample of the pixels of the canvas.
const COLOURS: &str = "(() => {
    const map = document.getElementById('map'), seen = new Set();
    const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
    for (let i = 0; i < data.length; i += 4 * 97) seen.add(data.slice(i, i + 4).join());
    return seen.size;
})()";

#[test]
fn marks_are_drawn_in_all_pictures_over_time() {
    let mut source = made::phases(300);
    source.marks = made::marks(&[(3000, "load begins"), (3100, "again"), (20_000, "<b>load ends</b>")]);
    let mut page = installed_or_skip!(open(&source, false, true));
    page.settle();
    let labels = "[...document.querySelectorAll('.moment-label')].map(label => label.textContent).join('|')";
    let whole = page.eval(labels);
    assert!(whole.as_str().unwrap().starts_with("load begins|<b>load ends</b>|load begins"), "{whole}");
    let at = page.on_map(0.1, 0.75);
    page.mouse("mouseMoved", at, json!({}));
    assert!(page.text("readout").ends_with(" · mark: load begins"), "{}", page.text("readout"));
    page.screenshot("marks");
    // Where there is room, the label of the second mark is shown.
    (0..4).for_each(|_| page.mouse("mouseWheel", at, json!({ "deltaX": 0, "deltaY": -240, "modifiers": 8 })));
    page.settle();
    let zoomed = page.eval(labels);
    assert!(zoomed.as_str().unwrap().contains("|again|"), "{zoomed}");
    page.screenshot("marks-zoomed");
}

#[test]
fn the_heatmap_can_be_zoomed_and_read_with_the_pointer() {
    let mut page = installed_or_skip!(open(&made::phases(300), false, true));
    page.settle();
    assert!(page.eval(COLOURS).as_u64().unwrap() > 10, "the heatmap is not drawn");
    let all = page.view();
    assert_eq!((all[0], all[1]), (0.0, 30.0));

    // In the middle of the first third, the lowest quarter of the anonymous memory is hot.
    let at = page.on_map(0.1, 0.75);
    page.mouse("mouseMoved", at, json!({}));
    let readout = page.text("readout");
    assert!(page.text("legend").contains("frequency in Hz"), "{}", page.text("legend"));
    for part in ["3.0", " s · 0x7f30", "anonymous", "110 Hz, for about"] {
        assert!(readout.contains(part), "{part} is not in {readout:?}");
    }
    assert!(page.text("moment").starts_with("at 3"), "{}", page.text("moment"));
    assert_eq!(page.eval("document.querySelectorAll('#table tbody tr.pointed').length"), json!(1));
    page.screenshot("light");
    let stack = page.on_map(0.1, 0.01);
    page.mouse("mouseMoved", stack, json!({}));
    assert!(page.text("readout").contains("200 Hz"), "{}", page.text("readout"));
    let absent = "document.querySelector('#table th[data-key=absent]').checkVisibility()";
    assert_eq!(page.eval(absent), json!(false), "no survey tells");
    let other = page.on_map(0.1, 0.95);
    page.mouse("mouseMoved", other, json!({}));
    assert!(page.text("readout").contains("[heap]"), "{}", page.text("readout"));

    page.mouse("mouseWheel", at, json!({ "deltaX": 0, "deltaY": -240 }));
    let zoomed = page.view();
    assert!(zoomed[1] - zoomed[0] < 20.0 && zoomed[3] - zoomed[2] < all[3], "{zoomed:?}");
    assert!(page.text("view").contains("zoomed in"));
    page.mouse("mouseWheel", at, json!({ "deltaX": 0, "deltaY": -240, "modifiers": 8 }));
    let narrow = page.view();
    assert!(narrow[1] - narrow[0] < zoomed[1] - zoomed[0] && narrow[2..] == zoomed[2..], "Shift zooms time only");
    page.screenshot("zoomed");

    page.eval("document.getElementById('reset').click()");
    assert_eq!(page.view(), all);
    let (from, to) = (page.on_map(0.25, 0.2), page.on_map(0.5, 0.6));
    let left = json!({ "button": "left", "buttons": 1, "clickCount": 1 });
    page.mouse("mousePressed", from, left.clone());
    page.mouse("mouseMoved", to, left.clone());
    page.mouse("mouseReleased", to, left.clone());
    let dragged = page.view();
    assert!((dragged[0] - 7.5).abs() < 0.2 && (dragged[1] - 15.0).abs() < 0.2, "{dragged:?}");
    let moving = json!({ "button": "left", "buttons": 1, "clickCount": 1, "modifiers": 8 });
    page.mouse("mousePressed", to, moving.clone());
    page.mouse("mouseMoved", from, moving.clone());
    page.mouse("mouseReleased", from, moving);
    let moved = page.view();
    assert!(moved[0] > dragged[0] && (moved[1] - moved[0] - (dragged[1] - dragged[0])).abs() < 1e-6, "{moved:?}");
    page.assert_content();
}

#[test]
fn targets_can_be_chosen_and_regions_sorted_in_the_dark_scheme() {
    let (mut source, other) = (made::phases_of(77, 60), made::phases_of(78, 60));
    source.rows.extend(other.rows.into_iter().map(|row| made::Row { cost: None, ..row }));
    source.rows.sort_by_key(|row| row.time);
    let mut page = installed_or_skip!(open(&source, true, true));
    page.settle();
    assert_eq!(page.eval("getComputedStyle(document.body).backgroundColor"), json!("rgb(15, 19, 24)"));
    assert_eq!(page.eval("document.querySelectorAll('#lanes li').length"), json!(2));
    page.eval("document.querySelectorAll('#lanes .name')[1].click()");
    page.settle();
    assert!(page.eval(COLOURS).as_u64().unwrap() > 10);
    page.eval("document.querySelector('#table th[data-key=size]').click()");
    let first = page.eval("document.querySelector('#table tbody tr').cells[1].textContent");
    assert_eq!(first, json!("44 MiB"));
    page.screenshot("dark");
    page.assert_content();
}

/// Five targets, one after the other and of different sizes. The third is the largest.
fn short_lived() -> made::Made {
    let mut rows = vec![];
    for (i, blocks) in [(0, 8), (1, 2), (2, 32), (3, 4), (4, 16)] {
        let mapping = made::mapping(made::ANON, made::ANON + blocks * made::MIB, "");
        let mappings: std::sync::Arc<[_]> = vec![mapping.clone()].into();
        for index in 1..=100 {
            let region = made::region(mapping.range.start(), mapping.range.end(), index % 20, index);
            let mut row = made::row(index + 100 * i, 100 + i, &mappings, vec![region]);
            let command = format!("/usr/lib/compiler/cc{i} -quiet main.c");
            row.info = isotherm_record::TargetInfo { command, ..Default::default() }.into();
            rows.push(row);
        }
    }
    made::made(rows)
}

#[test]
fn targets_are_found_by_name_and_process_id_and_each_can_be_zoomed_to_its_life() {
    let mut page = installed_or_skip!(open(&short_lived(), false, true));
    let all = page.view();
    assert_eq!((all[0], all[1]), (0.0, 50.0));
    assert_eq!(page.text("title"), "cc2 -quiet main.c, pid 102");
    let listed = "[...document.querySelectorAll('#lanes li:not([hidden]) .name')].map(name => name.textContent)";
    assert_eq!(page.eval(listed), json!(["cc2 102", "cc4 104", "cc0 100", "cc3 103", "cc1 101"]));
    page.screenshot("lanes");
    let search = |words: &str| {
        format!(
            "(() => {{ const s = document.getElementById('search'); s.value = '{words}';
            s.dispatchEvent(new Event('input')); }})()"
        )
    };
    for (words, found) in [("CC3", "cc3 103"), ("101", "cc1 101"), ("main.c 104", "cc4 104")] {
        page.eval(&search(words));
        assert_eq!(page.eval(listed), json!([found]));
        assert_eq!(page.text("found"), "1 of 5 targets");
    }
    page.eval("document.querySelector('#lanes li:not([hidden]) .life').click()");
    let life = page.view();
    assert_eq!(page.text("title"), "cc4 -quiet main.c, pid 104");
    assert!((life[0] - 40.0).abs() < 0.2 && (life[1] - 50.0).abs() < 1e-6, "{life:?}");
    page.eval(&search("nothing of that name"));
    assert_eq!(page.eval(listed), json!([]));
    page.eval(&search(""));
    // Another target is shown in the same time, in which nothing of it was recorded.
    page.eval("document.querySelector('#lanes .name[title*=cc0]').click()");
    assert_eq!(page.view()[..2], life[..2]);
    let at = page.on_map(0.5, 0.5);
    page.mouse("mouseMoved", at, json!({}));
    assert!(page.text("readout").contains("nothing mapped or recorded"), "{}", page.text("readout"));
    page.assert_content();
}

/// The texts of the time axis of each panel.
const TIMES: &str = "[...document.querySelectorAll('g.times')].map(
    axis => [...axis.querySelectorAll('text')].map(text => text.textContent))";

#[test]
fn all_pictures_over_time_show_the_same_time_and_no_label_occurs_twice() {
    let mut page = installed_or_skip!(open(&made::schemed(60), false, true));
    let all = page.view();
    let before = page.eval(TIMES);
    assert!(before.as_array().unwrap().len() > 5, "{before}");
    // A time is chosen in the working set.
    let script = "(() => {
        const panel = document.querySelector('section[aria-labelledby=h-wss] svg.panel');
        panel.scrollIntoView({ block: 'center' });
        const b = panel.getBoundingClientRect();
        return [b.x, b.y, b.width, b.height];
    })()";
    let panel = page.eval(script);
    let v = |i: usize| panel[i].as_f64().unwrap();
    let on_panel = |across: f64| (v(0) + v(2) * across, v(1) + v(3) / 2.0);
    let left = json!({ "button": "left", "buttons": 1, "clickCount": 1 });
    for (kind, across) in [("mousePressed", 0.4), ("mouseMoved", 0.45), ("mouseReleased", 0.5)] {
        page.mouse(kind, on_panel(across), left.clone());
    }
    let chosen = page.view();
    assert!((chosen[0] - 24.0).abs() < 0.3 && (chosen[1] - 30.0).abs() < 0.3, "{chosen:?}");
    let shown = page.eval(
        "[...document.querySelectorAll('svg.panel')].map(panel => {
            const [x, , width] = panel.getAttribute('viewBox').split(' ').map(Number);
            const scale = (panel.dataset.end - panel.dataset.start) / panel.getAttribute('width');
            const start = Number(panel.dataset.start) + (x - panel.getAttribute('x')) * scale;
            return [start, start + width * scale];
        })",
    );
    for time in shown.as_array().unwrap() {
        for (edge, expected) in [(0, chosen[0]), (1, chosen[1])] {
            assert!((time[edge].as_f64().unwrap() - expected).abs() < 0.01, "{shown} for {chosen:?}");
        }
    }
    for axis in page.eval(TIMES).as_array().unwrap() {
        let labels: Vec<&str> = axis.as_array().unwrap().iter().map(|label| label.as_str().unwrap()).collect();
        let distinct: std::collections::BTreeSet<_> = labels.iter().collect();
        assert!(labels.len() > 1 && labels.len() == distinct.len(), "{labels:?}");
    }
    page.screenshot("common-time");
    page.eval("document.getElementById('reset').click()");
    assert_eq!(page.view(), all);
    assert_eq!(page.eval(TIMES), before);
    page.assert_content();
}

#[test]
fn ticks_of_any_part_have_labels_of_their_own() {
    let mut page = installed_or_skip!(open(&made::phases(20), false, true));
    let repeated = page.eval(
        "(() => {
            const repeated = [];
            for (const from of [0, 1, 119.5, 300, 3599, 86400]) {
                for (const span of [1e-4, 0.003, 0.5, 4, 90, 5000]) {
                    const labels = timeTicks(from, from + span, 900, 90).map(tick => tick[1]);
                    if (new Set(labels).size !== labels.length) repeated.push(labels);
                }
            }
            for (const from of [0, 5e6, 2 ** 30, 3.3 * 2 ** 40]) {
                for (const span of [8192, 1e6, 3e7, 5e9]) {
                    const labels = sizeTicks(from, from + span, 12, 4096).map(tick => tick[1]);
                    if (new Set(labels).size !== labels.length) repeated.push(labels);
                }
            }
            return repeated;
        })()",
    );
    assert_eq!(repeated, json!([]));
    page.assert_content();
}

#[test]
fn what_is_in_swap_has_a_colour_and_a_line_of_its_own() {
    let mut page = installed_or_skip!(open(&made::with_heap_in_swap(20), false, true));
    page.settle();
    assert!(page.text("view").contains("64 MiB in memory, 28 MiB in swap, 28 MiB absent at the end"));
    assert!(page.text("legend").contains("in swap"));
    let reserved = page.on_map(0.5, 0.99);
    page.mouse("mouseMoved", reserved, json!({}));
    assert!(page.text("readout").contains("[heap] · nothing in memory · "), "{}", page.text("readout"));
    let heap = page.on_map(0.5, 0.9);
    page.mouse("mouseMoved", heap, json!({}));
    let readout = page.text("readout");
    assert!(readout.contains("[heap] · mostly in swap · ") && readout.contains(" in swap of "), "{readout}");
    page.screenshot("swap");
    let used = page.on_map(0.5, 0.7);
    page.mouse("mouseMoved", used, json!({}));
    let readout = page.text("readout");
    assert!(readout.contains("anonymous · 0 Hz") && readout.contains(" in memory of "), "{readout}");
    // The regions, and the heap, which has none.
    let last = "[...[...document.querySelectorAll('#table tbody tr')].at(-1).cells].map(cell => cell.textContent)";
    page.eval("document.querySelector('#table th[data-key=swapped]').click()");
    let first = page.eval(&last.replace(".at(-1)", "[0]"));
    assert_eq!([2, 4, 6, 7, 8].map(|column| first[column].clone()), ["", "", "8 MiB", "16 MiB", "[heap]"]);
    page.eval("document.querySelector('#table th[data-key=start]').click()");
    assert_eq!([7, 8].map(|column| page.eval(last)[column].clone()), ["12 MiB", "anonymous"]);
    assert!(page.text("moment").contains("5 regions; 8 MiB absent outside of regions"), "{}", page.text("moment"));
    page.assert_content();
}

#[test]
fn the_colours_show_access_rates_or_what_surveys_found_touched() {
    let mut page = installed_or_skip!(open(&made::surveyed(20), false, true));
    let at = page.on_map(0.5, 0.96);
    page.mouse("mouseMoved", at, json!({}));
    let readout = page.text("readout");
    assert!(readout.contains("0 Hz") && readout.contains("touched share 100 %"), "{readout}");
    let colour = "(() => {
        const map = document.getElementById('map'), ratio = devicePixelRatio;
        const at = [map.clientWidth / 2, map.clientHeight - 40].map(v => v * ratio);
        return [...map.getContext('2d').getImageData(...at, 1, 1).data.slice(0, 3)];
    })()";
    page.eval(
        "(() => { const m = document.getElementById('measure'); m.value = 'touched';
            m.dispatchEvent(new Event('change')); })()",
    );
    page.settle();
    assert_eq!(page.eval(colour), json!(isotherm_report::colour::of_rate(1.0)));
    assert!(page.text("touched-legend").contains("touched share"));
    assert_eq!(page.eval("document.getElementById('legend').checkVisibility()"), json!(false));
    page.screenshot("touched");
    page.assert_content();
    let mut plain = installed_or_skip!(open(&made::phases(20), false, true));
    assert_eq!(plain.eval("document.getElementById('measure').checkVisibility()"), json!(false));
}

#[test]
fn the_page_can_be_read_without_scripts() {
    let mut page = installed_or_skip!(open(&made::phases(60), false, false));
    assert!(
        page.eval("document.querySelector('noscript svg image').getBoundingClientRect().width").as_f64().unwrap()
            > 300.0
    );
    assert_eq!(page.eval("document.getElementById('heatmap').hidden"), json!(true));
    page.screenshot("noscript");
    page.assert_content();
}

#[test]
fn names_of_the_watched_process_cannot_run_scripts() {
    let mut source = made::phases(20);
    for row in &mut source.rows {
        let mut mappings = row.target.mappings.to_vec();
        mappings[2].name = "/x/</script><script>document.title='owned'</script><img src=https://example.com/x>".into();
        row.target.mappings = mappings.into();
    }
    let mut page = installed_or_skip!(open(&source, false, true));
    let at = page.on_map(0.5, 0.5);
    page.mouse("mouseMoved", at, json!({}));
    assert!(page.text("readout").contains("</script><script>"), "{}", page.text("readout"));
    assert_ne!(page.eval("document.title"), json!("owned"));
    assert_eq!(page.eval("document.images.length"), json!(0));
    page.assert_content();
    // The content security policy forbids any fetch.
    let refused = page.eval(
        "new Promise(done => {
            addEventListener('securitypolicyviolation', event => done(event.effectiveDirective), { once: true });
            document.body.append(Object.assign(new Image(), { src: 'https://example.com/x' }));
        })",
    );
    assert_eq!(refused, json!("img-src"));
}

#[test]
fn the_activity_of_schemes_has_a_section_of_its_own() {
    let mut page = installed_or_skip!(open(&made::schemed(60), false, true));
    page.settle();
    let section = "document.getElementById('h-schemes').closest('section')";
    assert_eq!(page.eval(&format!("{section}.querySelectorAll('table')[0].tBodies[0].rows.length")), json!(2));
    // The facts of each scheme are visible once its element is unfolded.
    let seen = format!("{section}.querySelector('details dl').checkVisibility()");
    assert_eq!(page.eval(&seen), json!(false));
    page.eval(&format!("{section}.querySelectorAll('details').forEach(each => each.open = true)"));
    page.settle();
    assert_eq!(page.eval(&seen), json!(true));
    // Rates of two schemes, the tuned quota of one, major faults, RSS, PSS and swap, PSI, and free memory.
    assert_eq!(
        page.eval(&format!("{section}.querySelectorAll('path.curve, path.second, path.third').length")),
        json!(9)
    );
    page.screenshot("schemes");
    page.assert_content();
    let mut dark = installed_or_skip!(open(&made::schemed(60), true, false));
    dark.screenshot("schemes-dark");
    dark.assert_content();
}
