//! The log: one line an event on standard error, where journald takes it. `<4>` and `<6>` are the levels of
//! sd-daemon(3), and are left out on a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use isotherm_run::{Notice, Severity};

/// So many lines are written in each time of this length. What follows is counted.
const MOST: u32 = 200;
const PERIOD: Duration = Duration::from_secs(30);

/// How many lines were written in the period that began at this time, and how many were left out.
static WRITTEN: Mutex<Option<(Instant, u32, u32)>> = Mutex::new(None);

/// Logs that something went as it was asked for.
pub fn info(text: &str) {
    line(6, text);
}

/// Logs that something went differently than it was asked for.
pub fn warning(text: &str) {
    line(4, text);
}

/// Logs a notice of a run.
pub fn tell(notice: &Notice) {
    match notice.severity {
        Severity::Warning => warning(&notice.text),
        Severity::Info => info(&notice.text),
    }
}

fn line(level: u8, text: &str) {
    let mut state = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (began, written, left_out) = state.get_or_insert((Instant::now(), 0, 0));
    if began.elapsed() >= PERIOD {
        if *left_out > 0 {
            write(4, &format!("{left_out} messages were left out"));
        }
        (*began, *written, *left_out) = (Instant::now(), 0, 0);
    }
    if *written >= MOST {
        *left_out += 1;
        return;
    }
    *written += 1;
    write(level, text);
}

fn write(level: u8, text: &str) {
    // Names of processes may be part of it.
    let text = isotherm_core::sanitise(text);
    let mut out = stderr().lock();
    // There is no other place to report a failure.
    let _ = if out.is_terminal() { writeln!(out, "isotherm: {text}") } else { writeln!(out, "<{level}>{text}") };
}
