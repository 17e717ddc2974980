//! Wrong calls and failures. Each message says what failed, on what, why, and how to fix it. Nothing panics.

use std::process::{Command, Stdio};

use isotherm_testing::or_skip;

use crate::common::{self, Kept, Place, Ran};

/// Asserts that a run failed (status 1), or that a call was wrong (status 2), and that the message contains `words`.
#[track_caller]
fn refused(ran: &Ran, status: i32, words: &[&str]) {
    assert_eq!(ran.status, status, "{ran:?}");
    for word in words {
        assert!(ran.err.contains(word), "{word:?} is not in: {}", ran.err);
    }
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    // clap adds the usage to the message of a wrong call.
    let message = ran.err.lines().take_while(|line| !line.is_empty()).count();
    assert!(message <= 2, "more than two lines: {}", ran.err);
}

#[test]
fn a_process_that_does_not_exist() {
    refused(&Place::new().run(&["record", "--pid", "4194304"]), 1, &["no process 4194304", "ps -e"]);
    refused(&Place::new().run(&["record", "--pid", "0"]), 2, &["--pid", "0 is not in 1.."]);
    refused(&Place::new().run(&["record", "--pid", "me"]), 2, &["--pid", "me"]);
}

#[test]
fn a_kernel_thread() {
    let (pid, name) = or_skip!(first_kernel_thread().ok_or("no kernel thread is seen from here"));
    let process = format!("process {pid} ({name})");
    refused(&Place::new().run(&["record", "--pid", &pid.to_string()]), 1, &[&process, "kernel thread", "choose"]);
}

/// The kernel thread with the lowest process ID, and its name.
fn first_kernel_thread() -> Option<(u32, String)> {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let processes =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let kernel_threads = processes.filter_map(|pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (before, after) = stat.rsplit_once(") ")?;
        let flags: u32 = after.split(' ').nth(6)?.parse().ok()?;
        (flags & PF_KTHREAD != 0).then(|| (pid, before.split_once('(').unwrap().1.to_owned()))
    });
    kernel_threads.min()
}

#[test]
fn the_usage_is_that_of_the_command_and_not_of_those_above_it() {
    for (call, usage) in [
        (&["record", "--all", "--range", "0:4K"][..], "Usage: isotherm record"),
        (&["tier", "try", "-o", "picture.bmp"], "Usage: isotherm tier try"),
        (&["report", "tune", "-o", "picture.svg"], "Usage: isotherm report tune"),
    ] {
        refused(&Place::new().run(call), 2, &[usage]);
    }
}

#[test]
fn a_process_of_another_user() {
    let place = Place::new();
    let sleep = Kept(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap());
    let pid = if common::is_root() { sleep.0.id() } else { 1 };
    let ran = or_skip!(place.run_as_nobody(&["record", "--pid", &pid.to_string()]));
    refused(&ran, 1, &[&format!("process {pid}"), "belongs to user 0", "as root"]);
}

#[test]
fn a_command_that_does_not_exist_or_is_missing() {
    refused(&Place::new().run(&["record", "--", "no-such-command"]), 1, &["no-such-command", "$PATH"]);
    refused(&Place::new().run(&["record", "--", "/etc/passwd"]), 1, &["/etc/passwd", "executable"]);
    refused(&Place::new().run(&["record"]), 2, &["--pid, --name", "command after --", "--physical"]);
    refused(&Place::new().run(&["record", "--pid", "1", "--", "true"]), 2, &["--pid", "cannot be used with"]);
}

#[test]
fn physical_memory_with_options_that_contradict_it() {
    let place = Place::new();
    refused(&place.run(&["record", "--physical", "--pid", "1"]), 2, &["--physical", "cannot be used with", "--pid"]);
    refused(
        &place.run(&["record", "--physical", "--children"]),
        2,
        &["--physical", "cannot be used with", "--children"],
    );
    refused(&place.run(&["record", "--physical", "--probe", "refs"]), 2, &["physical memory", "--probe idle, bpf"]);
    refused(&place.run(&["record", "--physical", "--range", "2GiB:1GiB"]), 2, &["--range", "reversed"]);
    refused(&place.run(&["record", "--physical", "--range", "1GiB"]), 2, &["--range", "FROM:TO"]);
}

#[test]
fn the_kernels_damon_with_options_that_contradict_it() {
    let place = Place::new();
    let call = ["record", "--probe", "damon"];
    refused(
        &place.run(&[&call[..], &["--children", "--pid", "1"]].concat()),
        2,
        &["probe damon", "another --probe", "without --children"],
    );
    let range = ["--range", "1GiB:2GiB"];
    refused(&place.run(&[&call[..], &range, &["--pid", "1", "--pid", "2"]].concat()), 2, &["--range", "one process"]);
    refused(&place.run(&[&call[..], &range, &["--", "true"]].concat()), 2, &["--range", "one --pid"]);
}

#[test]
fn physical_memory_by_page_tables_with_options_that_contradict_it() {
    if !rustix::process::geteuid().is_root() {
        return isotherm_testing::skip("the probe bpf needs root");
    }
    let place = Place::new();
    let call = ["record", "--physical", "--probe", "bpf"];
    let refuses = |more: &[&str], words: &[&str]| refused(&place.run(&[&call[..], more].concat()), 2, words);
    refuses(&["--sample", "5ms"], &["cannot sample physical memory", "--sample off"]);
    refuses(&["--survey", "off"], &["by surveys only", "leave out --survey off"]);
    refuses(&["--duration", "300ms"], &["300 ms", "1 s", "shorten --aggr"]);
}

#[test]
fn idle_page_tracking_that_the_kernel_does_not_have() {
    if std::path::Path::new("/sys/kernel/mm/page_idle/bitmap").exists() {
        return isotherm_testing::skip("this kernel has idle page tracking");
    }
    let words = ["page_idle/bitmap", "No such file", "CONFIG_IDLE_PAGE_TRACKING"];
    refused(&Place::new().run(&["record", "--physical", "--probe", "idle", "--duration", "1s"]), 1, &words);
    refused(&Place::new().run(&["record", "--probe", "idle", "--", "true"]), 1, &words);
}

#[test]
fn a_command_that_ends_at_once() {
    let how = ["tune", "--probe", "refs", "--sample", "100s", "--update", "100ms", "--", "true"];
    refused(&Place::new().run(&how), 1, &["no snapshot was recorded", "--sample"]);
}

#[test]
fn invalid_intervals() {
    for (arguments, words) in [
        (["--sample", "0s"], ["sampling interval is zero", "5ms"]),
        (["--aggr", "0ms"], ["aggregation interval is zero", "5ms"]),
        (["--update", "0s"], ["update interval is zero", "5ms"]),
        (["--sample", "1ns"], ["shorter than 100 µs", "lengthen"]),
        (["--aggr", "50us"], ["longer than the aggregation interval (50 µs)", "lengthen"]),
        (["--sample", "5"], ["--sample", "unit"]),
        (["--aggr", "-5ms"], ["-5", "--"]),
        (["--duration", "10ms"], ["shorter than the aggregation interval", "--aggr"]),
    ] {
        let [option, value] = arguments;
        refused(&Place::new().run(&["record", option, value, "--", "true"]), 2, &words);
    }
}

#[test]
fn a_goal_of_intervals_that_can_have_no_effect() {
    for (arguments, words) in [
        (&["--intervals-goal", "0"][..], &["--intervals-goal", "a goal of 0 asks for no access"][..]),
        (&["--intervals-goal", "120%"], &["--intervals-goal"]),
        (&["--intervals-goal", "4%", "--sample", "5ms"], &["--intervals-goal", "--sample"]),
        (&["--intervals-goal", "4%", "--intervals", "fixed"], &["have a goal", "leave out --intervals-goal"]),
    ] {
        let call = [&["record"][..], arguments, &["--", "true"]].concat();
        refused(&Place::new().run(&call), 2, words);
    }
}

#[test]
fn invalid_numbers_of_regions() {
    for (bounds, word) in [
        ("100:10", "exchange"),
        ("2:10", "at least 3"),
        ("10", "MIN:MAX"),
        ("a:b", "a whole number such as 1000"),
        ("0:0", "at least 3"),
    ] {
        refused(&Place::new().run(&["record", "--regions", bounds, "--", "true"]), 2, &[word]);
    }
}

#[test]
fn invalid_ranges_and_limits() {
    for (option, range, word) in [
        ("--time", "5s:2s", "reversed"),
        ("--time", "2s:2s", "empty"),
        ("--time", "2s", "FROM:TO"),
        ("--address", "0x2000:0x1000", "reversed"),
        ("--address", "0x1000:0x1000", "empty"),
        ("--address", "zero:one", "an address such as 0x7f0000000000 or 4GiB"),
        ("--min-rate", "2", "at most 100%, or of at most 1"),
        ("--min-rate", "half", "a share such as 5% or 0.05"),
        ("--min-size", "4X", "a size such as 4K, 2M or 1.5G"),
    ] {
        refused(&Place::new().run(&["report", "regions", option, range]), 2, &[option, word]);
    }
}

#[test]
fn an_output_that_cannot_be_written() {
    let place = Place::new();
    refused(
        &place.run(&["record", "-o", "no/such/place.rec", "--", "true"]),
        1,
        &["no/such/place.rec", "create its directory"],
    );
    refused(&place.run(&["record", "-o", ".", "--", "true"]), 1, &["directory", "name another file"]);
    let _full = or_skip!(place.full_device());
    refused(&place.run(&["record", "-o", "full", "--", "true"]), 1, &["full", "No space left"]);
}

#[test]
fn a_file_that_is_not_a_recording() {
    let place = Place::new();
    let write = |name: &str, bytes: &[u8]| std::fs::write(place.path(name), bytes).unwrap();
    write("empty", b"");
    write("text", b"this is no recording, and never was one\n");
    write("picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    refused(&place.run(&["report", "summary"]), 1, &["isotherm.rec", "No such file", "isotherm record"]);
    refused(&place.run(&["report", "summary", "empty"]), 1, &["empty", "record again"]);
    refused(&place.run(&["report", "summary", "text"]), 1, &["text", "not a recording", "isotherm record"]);
    refused(&place.run(&["report", "summary", "picture"]), 1, &["picture", "not a recording"]);
    refused(&place.run(&["report", "summary", "."]), 1, &["directory"]);
    refused(&place.run(&["convert", "text", "out.csv"]), 1, &["text", "not a recording"]);
    assert!(!place.path("out.csv").exists());
}

#[test]
fn a_recording_that_is_cut_short() {
    let place = Place::new();
    // Its batches are of a minute.
    place.make_recording_of(6, "isotherm.rec");
    let whole = std::fs::read(place.path("isotherm.rec")).unwrap();
    let cut = |bytes: usize| std::fs::write(place.path("cut.rec"), &whole[..bytes]).unwrap();
    cut(100);
    refused(&place.run(&["report", "summary", "cut.rec"]), 1, &["cut.rec", "cut"]);
    // The complete part before the cut is shown, and the cut is reported.
    cut(whole.len() - 200);
    let ran = place.run(&["report", "summary", "cut.rec"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("cut short"), "{}", ran.out);
    // A wrong bit in the header is corrected, and reported.
    let mut damaged = whole.clone();
    damaged[300] ^= 0x10;
    std::fs::write(place.path("damaged.rec"), &damaged).unwrap();
    let ran = place.run(&["report", "summary", "damaged.rec"]);
    assert!(ran.status == 0 && ran.err.contains("one bit of the header"), "{ran:?}");
    // More wrong bytes are reported as damage, not as a cut.
    damaged[300..310].fill(0x10);
    std::fs::write(place.path("damaged.rec"), &damaged).unwrap();
    refused(&place.run(&["report", "summary", "damaged.rec"]), 1, &["damaged.rec", "damaged"]);
}

#[test]
fn a_kind_a_format_or_a_pattern_that_does_not_exist() {
    let place = Place::new();
    refused(&place.run(&["report", "heat"]), 2, &["heat", "heatmap"]);
    refused(&place.run(&["report", "heatmap", "--format", "gif"]), 2, &["gif", "png"]);
    refused(&place.run(&["report", "html", "--format", "png"]), 2, &["png", "[possible values: html]"]);
    refused(&place.run(&["workload", "ladder"]), 2, &["ladder", "stairs"]);
    refused(&place.run(&["workload", "ladder.toml"]), 1, &["ladder.toml", "No such file"]);
    refused(&place.run(&["record", "--probe", "guess", "--", "true"]), 2, &["guess", "bpf"]);
    refused(&place.run(&["tier", "try", "--fast", "lots"]), 2, &["--fast", "a size such as"]);
    refused(&place.run(&["tier", "try", "--fast", "120%"]), 2, &["--fast", "at most 100%"]);
    refused(&place.run(&["tier", "try", "--slow-price", "0.5"]), 2, &["--slow-price", "from 1 to 1000"]);
    refused(&place.run(&["tier", "try"]), 1, &["isotherm.rec", "No such file", "isotherm record"]);
    refused(&place.run(&["remember"]), 2, &["remember"]);
}
