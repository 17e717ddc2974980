//! Right sizes of known needs.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use super::*;

const MINUTES_OF_DAY: u64 = 24 * 60;

/// A need each minute for so many minutes, in MiB.
fn needs(minutes: u64, mib: impl Fn(u64) -> u64) -> Vec<Need> {
    let need = |nth| Need { time: STEP * nth as u32 + STEP / 2, held: STEP, bytes: mib(nth) * MIB };
    (0..minutes).map(need).collect()
}

/// A cgroup of which all is known, with swap and without pressure.
fn calm() -> Charged {
    Charged { current: Some(2048 * MIB), unmapped: Some(0), unswappable: Some(0), pressure: Some(0.0) }
}

fn size(needs: &[Need]) -> RightSize {
    right_size(needs, WINDOW, &calm()).unwrap()
}

fn mib(size: &RightSize) -> (u64, u64) {
    (size.request_bytes / MIB, size.limit_bytes / MIB)
}

#[test]
fn a_constant_need_gets_its_margin() {
    let found = size(&needs(MINUTES_OF_DAY, |_| 412));
    assert_eq!(mib(&found), (474, 474), "{}", found.reason);
    assert_eq!((found.usual_bytes, found.peak_bytes), (412 * MIB, 412 * MIB));
    assert_eq!(
        found.reason,
        "95 % of the minutes of 24 h needed at most 412 MiB; 15 % more makes 474 MiB. The minute with the most needed \
         412 MiB; with 15 % more, the limit is 474 MiB. Tasks waited for memory for less than 0.1 % of the last 5 \
         minutes."
    );
    // A small one gets at least so much.
    assert_eq!(mib(&size(&needs(MINUTES_OF_DAY, |_| 20))), (36, 36));
}

#[test]
fn a_daily_peak_of_more_than_a_twentieth_of_the_day_counts_and_a_shorter_one_is_for_the_limit() {
    let peak = |length: u64| move |nth: u64| if nth % MINUTES_OF_DAY < length { 800 } else { 200 };
    assert_eq!(mib(&size(&needs(7 * MINUTES_OF_DAY, peak(120)))), (920, 920));
    assert_eq!(mib(&size(&needs(7 * MINUTES_OF_DAY, peak(30)))), (230, 920));
}

#[test]
fn a_need_that_grows_gets_what_it_needs_now() {
    let found = size(&needs(MINUTES_OF_DAY, |nth| 100 + nth / 2));
    let now = 100 + (MINUTES_OF_DAY - 1) / 2;
    assert!(found.usual_bytes < now * MIB && found.request_bytes >= now * MIB * 115 / 100, "{found:?}");
    assert!(found.reason.contains(&format!(", and the last one {now} MiB; ")), "{}", found.reason);
}

#[test]
fn a_burst_an_hour_ago_is_for_the_limit() {
    let burst = |nth: u64| if (MINUTES_OF_DAY - 62..MINUTES_OF_DAY - 60).contains(&nth) { 1000 } else { 300 };
    assert_eq!(mib(&size(&needs(MINUTES_OF_DAY, burst))), (345, 1150));
}

#[test]
fn what_was_needed_days_ago_counts_less_and_less() {
    // Half of the time it needed 600 MiB, up to so many days ago.
    let then = |days: u64| move |nth: u64| if nth < days * MINUTES_OF_DAY { 600 } else { 300 };
    let ago = |days: u64| mib(&size(&needs(2 * days * MINUTES_OF_DAY, then(days)))).0;
    assert_eq!((ago(1), ago(3), ago(5)), (690, 690, 345));
}

#[test]
fn a_gap_between_two_runs_of_a_process_is_no_need_and_no_history() {
    let whole = needs(MINUTES_OF_DAY, |_| 300);
    let restarted: Vec<Need> =
        whole.iter().filter(|need| !(400..700).contains(&(need.time.as_secs() / 60))).copied().collect();
    let (whole, restarted) = (size(&whole), size(&restarted));
    assert_eq!(mib(&whole), mib(&restarted));
    assert_eq!(restarted.known_ns, whole.known_ns - 300 * STEP.as_nanos() as u64);
}

#[test]
fn too_little_history_says_nothing_and_a_day_and_a_week_say_more() {
    let refused = right_size(&needs(59, |_| 300), WINDOW, &calm()).unwrap_err();
    assert_eq!(refused, "59 min of history are known, and at least 1 h are needed");
    assert!(right_size(&[], WINDOW, &calm()).is_err());
    let confidence = |minutes| size(&needs(minutes, |_| 300)).confidence;
    assert!(confidence(60).starts_with("low: 1 h are known"), "{}", confidence(60));
    assert!(confidence(MINUTES_OF_DAY).starts_with("medium: "));
    assert!(confidence(7 * MINUTES_OF_DAY).starts_with("high: "));
    let seconds = Duration::from_secs;
    let windows = [69, 70, 300, 3600, 4199, 4200, 86400].map(|length| window_of(seconds(length)));
    let expected = [0, 10, 30, 300, 300, 600, 600].map(|window| Some(seconds(window)).filter(|of| !of.is_zero()));
    assert_eq!(windows, expected);
}

#[test]
fn a_cgroup_that_waits_for_memory_gets_no_less_than_it_has() {
    let needs = needs(MINUTES_OF_DAY, |_| 300);
    let of = |pressure| right_size(&needs, WINDOW, &Charged { pressure: Some(pressure), ..calm() }).unwrap();
    assert_eq!(mib(&of(0.0009)), (345, 345));
    let short = of(0.02);
    assert_eq!(mib(&short), (2356, 2356));
    assert!(
        short.reason.contains("tasks wait for memory, so that nothing below the 2 GiB of now is right"),
        "{short:?}"
    );
    assert!(short.reason.contains("for 2.0 % of the last 5 minutes"), "{}", short.reason);
}

#[test]
fn what_surveys_do_not_see_and_what_cannot_make_room_count_as_needed() {
    let needs = needs(MINUTES_OF_DAY, |_| 300);
    let of = |charged| right_size(&needs, WINDOW, &charged).unwrap();
    let with = of(Charged { unmapped: Some(100 * MIB), ..calm() });
    assert_eq!(mib(&with), (460, 460));
    assert!(with.reason.contains("have 100 MiB more; 15 % more makes 460 MiB"), "{}", with.reason);
    let without_swap = of(Charged { unswappable: Some(600 * MIB), ..calm() });
    assert_eq!(mib(&without_swap), (690, 690));
    assert!(without_swap.reason.contains("without swap, 600 MiB of anonymous memory"), "{}", without_swap.reason);
    let unknown = of(Charged::default());
    assert_eq!((mib(&unknown), unknown.unknown.len()), ((345, 345), 4));
    assert!(!unknown.reason.contains("Tasks"), "{}", unknown.reason);
}
