//! Calls take effect, and the target does not notice them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::target::{Counts, Target};
use crate::{Inside, InsideCall, InsideError};
use isotherm_core::AddrRange;

/// Forbids and allows huge pages in the target's memory in turn for this long. Returns the number of calls.
fn call_for(target: &Target, inside: &mut Inside, time: Duration) -> u64 {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < time {
        let call = if done % 2 == 0 { InsideCall::NoHugePage } else { InsideCall::HugePage };
        let mut results = Vec::new();
        match inside.make(target.pid(), call, &[target.memory], &mut results) {
            Ok(()) => {
                assert_eq!(results, [Ok(())]);
                let (set, clear) = if done % 2 == 0 { ("nh", "hg") } else { ("hg", "nh") };
                assert!(target.has_flag(set) && !target.has_flag(clear));
                done += 1;
            }
            // A signal arrived at each attempt, or other work kept the target from a processor.
            Err(InsideError::Busy(_) | InsideError::Unresponsive(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    done
}

/// Makes some calls, however long that takes on a busy machine.
fn call_several_times(target: &Target) {
    let (began, mut inside, mut done) = (Instant::now(), Inside::new(), 0);
    while done < 6 {
        done += call_for(target, &mut inside, Duration::from_millis(50));
        assert!(began.elapsed() < Duration::from_secs(60), "{done} calls in a minute");
    }
}

pub fn assert_unharmed(counts: &Counts) {
    assert!(counts.of("rounds") > 0, "{counts:?}");
    assert_eq!((counts.of("wrong"), counts.of("odd")), (0, 0), "{counts:?}");
}

#[test]
fn each_call_takes_effect_on_the_memory_it_names() {
    let mut target = Target::start("compute");
    let mut inside = Inside::new();
    for (call, flag, set) in [
        (InsideCall::NoHugePage, "nh", true),
        (InsideCall::HugePage, "hg", true),
        (InsideCall::MLock, "lo", true),
        (InsideCall::MUnlock, "lo", false),
    ] {
        let mut results = Vec::new();
        inside.make(target.pid(), call, &[target.memory], &mut results).unwrap();
        assert_eq!((results, target.has_flag(flag)), (vec![Ok(())], set), "{call:?}");
    }
    let counts = target.end();
    assert_unharmed(&counts);
    assert_eq!(counts.of("interrupted"), 0);
}

#[test]
fn each_range_has_its_own_result() {
    let target = Target::start("compute");
    let memory = target.memory;
    let page = |from: u64| AddrRange::new(memory.start() + from, memory.start() + from + 4096).unwrap();
    let unmapped = AddrRange::new(0x1_0000, 0x1_1000).unwrap();
    // These ranges need more than one request.
    let ranges: Vec<_> = (0..200).map(|i| if i % 5 == 0 { unmapped } else { page(i * 8192) }).collect();
    let mut results = Vec::new();
    Inside::new().make(target.pid(), InsideCall::NoHugePage, &ranges, &mut results).unwrap();
    let expected = (0..200).map(|i| if i % 5 == 0 { Err(Errno::NOMEM) } else { Ok(()) });
    assert_eq!(results, expected.collect::<Vec<_>>());
}

/// Makes `count` calls inside a target that sleeps. Returns how many times it was stopped for them.
fn stops_of(count: usize, max_stop: Option<Duration>) -> u64 {
    let mut target = Target::start("block read");
    let mut inside = Inside::new();
    inside.max_stop = max_stop;
    let page = |nth: usize| {
        let start = target.memory.start() + nth as u64 * 8192;
        AddrRange::new(start, start + 4096).unwrap()
    };
    let ranges: Vec<AddrRange> = (0..count).map(page).collect();
    let mut results = Vec::new();
    inside.make(target.pid(), InsideCall::NoHugePage, &ranges, &mut results).unwrap();
    assert_eq!(results, vec![Ok(()); count]);
    target.send("x");
    target.end();
    inside.stops()
}

#[test]
fn the_number_of_stops_has_a_bound() {
    const CALLS: usize = 500;
    // However long a call takes, each stop makes one: there are no more stops than calls.
    assert_eq!(stops_of(CALLS, Some(Duration::ZERO)), CALLS as u64);
    // However short a call is, a stop makes 64 of them at most.
    assert_eq!(stops_of(CALLS, Some(Duration::from_secs(1000))), 8);
    let stops = stops_of(CALLS, None);
    assert!((8..=CALLS as u64).contains(&stops), "{stops}");
    assert_eq!(stops_of(0, None), 0);
}

#[test]
fn a_target_that_computes_and_makes_calls_notices_nothing() {
    let mut target = Target::start("compute");
    let done = call_for(&target, &mut Inside::new(), Duration::from_secs(3));
    let counts = target.end();
    assert_unharmed(&counts);
    assert_eq!(counts.of("interrupted"), 0, "{counts:?}");
    assert!(done > 100, "{done}");
}

#[test]
fn calls_are_made_while_threads_start_and_end() {
    let mut target = Target::start("threads");
    let done = call_for(&target, &mut Inside::new(), Duration::from_secs(2));
    assert_unharmed(&target.end());
    assert!(done > 50, "{done}");
}

/// Queues the signal that targets handle, with this value.
fn send_signal(pid: u32, value: u64) -> std::io::Result<()> {
    let value = libc::sigval { sival_ptr: value as *mut _ };
    // SAFETY: the arguments are numbers. No process uses `value` as a pointer.
    let result = unsafe { libc::sigqueue(pid.cast_signed(), libc::SIGRTMIN() + 1, value) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn every_signal_arrives_once() {
    const SIGNALS: u64 = 10_000;
    // On a busy machine, more signals arrive, with more time between them, until there were calls meanwhile.
    const MOST: u64 = 10 * SIGNALS;
    const CALLS: u64 = 10;
    let mut target = Target::start("signals");
    let pid = target.pid();
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let send = move || {
        for value in 1..=MOST {
            // The queue of signals has a limit.
            while let Err(error) = send_signal(pid, value) {
                assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
                std::thread::yield_now();
            }
            if value.is_multiple_of(16) {
                std::thread::sleep(Duration::from_micros(if value < SIGNALS { 300 } else { 5_000 }));
            }
            if value >= SIGNALS && seen.load(Ordering::Relaxed) > CALLS {
                return value;
            }
        }
        MOST
    };
    let sender = std::thread::spawn(send);
    let mut inside = Inside::new();
    while !sender.is_finished() {
        done.fetch_add(call_for(&target, &mut inside, Duration::from_millis(200)), Ordering::Relaxed);
    }
    let sent = sender.join().unwrap();
    let counts = target.end();
    assert_unharmed(&counts);
    assert_eq!((counts.of("signals"), counts.of("sum")), (sent, sent * (sent + 1) / 2), "{counts:?}");
    assert!(done.load(Ordering::Relaxed) > CALLS, "{done:?}");
}

#[test]
fn a_call_with_a_timeout_ends_in_time() {
    for how in ["nanosleep 3000", "futex 3000", "poll 3000"] {
        let mut target = Target::start(&format!("block {how}"));
        let done = call_for(&target, &mut Inside::new(), Duration::from_millis(2000));
        let counts = target.end();
        let errno = if how.starts_with("futex") { libc::ETIMEDOUT } else { 0 };
        assert_eq!(counts.of("errno"), errno as u64, "{how} {counts:?}");
        // If the timeout began anew after each stop, the call would take five seconds.
        assert!((3000..4800).contains(&counts.of("took")), "{how} {counts:?}");
        assert!(done > 5, "{done}");
    }
}

#[test]
fn a_call_without_a_timeout_continues_to_wait() {
    for how in ["read", "poll-input", "epoll"] {
        let mut target = Target::start(&format!("block {how}"));
        call_several_times(&target);
        target.send("x");
        let counts = target.end();
        assert_eq!((counts.of("result"), counts.of("errno")), (2, 0), "{how} {counts:?}");
    }
}

#[test]
fn a_signal_ends_a_call_that_waits_for_it() {
    let mut target = Target::start("block sigsuspend");
    call_several_times(&target);
    send_signal(target.pid(), 0).unwrap();
    let counts = target.end();
    assert_eq!((counts.of("result"), counts.of("errno")), (0, libc::EINTR as u64), "{counts:?}");
}
