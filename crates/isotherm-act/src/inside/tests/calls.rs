//! Calls are made, and the target does not notice.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::target::{Counts, Target};
use crate::{Inside, InsideCall, InsideError};
use isotherm_core::AddrRange;

/// Forbids huge pages in the target's memory, allows them, and so on, for this long; gives how often that was done.
fn go_on_for(target: &Target, inside: &mut Inside, time: Duration) -> u64 {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < time {
        let call = if done % 2 == 0 { InsideCall::NoHugePage } else { InsideCall::HugePage };
        let mut results = Vec::new();
        match inside.make(target.pid(), call, &[target.memory], &mut results) {
            Ok(()) => {
                assert_eq!(results, [Ok(())]);
                let (has, has_not) = if done % 2 == 0 { ("nh", "hg") } else { ("hg", "nh") };
                assert!(target.has_flag(has) && !target.has_flag(has_not));
                done += 1;
            }
            // A signal came each time.
            Err(InsideError::Busy(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    done
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
    // More than one request holds.
    let ranges: Vec<_> = (0..200).map(|i| if i % 5 == 0 { unmapped } else { page(i * 8192) }).collect();
    let mut results = Vec::new();
    Inside::new().make(target.pid(), InsideCall::NoHugePage, &ranges, &mut results).unwrap();
    let expected = (0..200).map(|i| if i % 5 == 0 { Err(Errno::NOMEM) } else { Ok(()) });
    assert_eq!(results, expected.collect::<Vec<_>>());
}

#[test]
fn a_target_that_computes_and_makes_calls_notices_nothing() {
    let mut target = Target::start("compute");
    let done = go_on_for(&target, &mut Inside::new(), Duration::from_secs(3));
    let counts = target.end();
    assert_unharmed(&counts);
    assert_eq!(counts.of("interrupted"), 0, "{counts:?}");
    assert!(done > 100, "{done}");
}

#[test]
fn threads_that_come_and_go_are_no_hindrance() {
    let mut target = Target::start("threads");
    let done = go_on_for(&target, &mut Inside::new(), Duration::from_secs(2));
    assert_unharmed(&target.end());
    assert!(done > 50, "{done}");
}

#[test]
fn every_signal_arrives_once() {
    const SIGNALS: u64 = 10_000;
    let mut target = Target::start("signals");
    let pid = target.pid();
    let send = move || {
        for value in 1..=SIGNALS {
            let with = libc::sigval { sival_ptr: value as *mut _ };
            // The queue has a limit.
            while unsafe { libc::sigqueue(pid.cast_signed(), libc::SIGRTMIN() + 1, with) } != 0 {
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
                std::thread::yield_now();
            }
            if value.is_multiple_of(16) {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    };
    let sender = std::thread::spawn(send);
    let mut inside = Inside::new();
    let mut done = 0;
    while !sender.is_finished() {
        done += go_on_for(&target, &mut inside, Duration::from_millis(200));
    }
    sender.join().unwrap();
    let counts = target.end();
    assert_unharmed(&counts);
    assert_eq!((counts.of("signals"), counts.of("sum")), (SIGNALS, SIGNALS * (SIGNALS + 1) / 2), "{counts:?}");
    assert!(done > 10, "{done}");
}

#[test]
fn a_call_with_an_end_in_time_keeps_it() {
    for how in ["nanosleep 1000", "futex 1000", "poll 1000"] {
        let mut target = Target::start(&format!("block {how}"));
        let done = go_on_for(&target, &mut Inside::new(), Duration::from_millis(900));
        let counts = target.end();
        let errno = if how.starts_with("futex") { libc::ETIMEDOUT } else { 0 };
        assert_eq!(counts.of("errno"), errno as u64, "{how} {counts:?}");
        // Had it begun anew each time, it would have taken almost two seconds.
        assert!((1000..1800).contains(&counts.of("took")), "{how} {counts:?}");
        assert!(done > 5, "{done}");
    }
}

#[test]
fn a_call_that_waits_goes_on_to_wait() {
    for how in ["read", "poll-input", "epoll"] {
        let mut target = Target::start(&format!("block {how}"));
        let done = go_on_for(&target, &mut Inside::new(), Duration::from_millis(300));
        target.tell("x");
        let counts = target.end();
        assert_eq!((counts.of("result"), counts.of("errno")), (2, 0), "{how} {counts:?}");
        assert!(done > 5, "{how} {counts:?} {done}");
    }
}

#[test]
fn a_signal_still_interrupts_what_it_interrupts() {
    let mut target = Target::start("block sigsuspend");
    let done = go_on_for(&target, &mut Inside::new(), Duration::from_millis(300));
    assert_eq!(unsafe { libc::kill(target.pid().cast_signed(), libc::SIGRTMIN() + 1) }, 0);
    let counts = target.end();
    assert_eq!((counts.of("result"), counts.of("errno")), (0, libc::EINTR as u64), "{counts:?}");
    assert!(done > 5, "{counts:?} {done}");
}
