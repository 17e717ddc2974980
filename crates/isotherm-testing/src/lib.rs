//! What the tests of isotherm's crates share: skipping a test in a way that is seen, [a process that a test
//! commands](Served), and [pages in a browser](browser).
//!
//! A test skips when the machine lacks something that the test needs: a feature of the kernel, a privilege, a program.
//! It prints one line, `SKIPPED: test: reason`, to the standard error, also when the test harness captures the output
//! of tests. `./dev test` lists and counts these lines at its end.
//!
//! ```
//! # use isotherm_testing::or_skip;
//! fn probe() -> Result<u32, String> {
//!     Err("this kernel has no such probe".into())
//! }
//!
//! fn a_test() {
//!     let probe = or_skip!(probe());
//!     assert_eq!(probe, 1);
//! }
//! # a_test();
//! ```

#![forbid(unsafe_code)]

pub mod browser;
mod served;

use std::fmt::Display;
use std::io::Write;
use std::panic::Location;

pub use served::{Served, serve};

/// The environment variable that forbids [`installed_or_skip!`] to skip. `./dev test` sets it, because it installs what
/// these tests need.
pub const NO_SKIP: &str = "ISOTHERM_NO_SKIP";

/// Evaluates to the value of a `Result`; on an error, skips the test with the error as the reason.
#[macro_export]
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => return $crate::skip(reason),
        }
    };
}

/// As [`or_skip!`], for what `./dev test` installs. It panics instead of skipping where [`NO_SKIP`] is set.
#[macro_export]
macro_rules! installed_or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => return $crate::skip_not_installed(reason),
        }
    };
}

/// Prints that the current test is skipped, and why. The caller then returns.
#[track_caller]
pub fn skip(reason: impl Display) {
    let line = line(std::thread::current().name(), Location::caller(), &reason.to_string());
    // One write, so that no other output comes between; not by `eprint!`, whose output the harness captures.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// As [`skip`], for what `./dev test` installs.
///
/// # Panics
///
/// Panics if the environment variable [`NO_SKIP`] is set.
#[track_caller]
pub fn skip_not_installed(reason: impl Display) {
    assert!(std::env::var_os(NO_SKIP).is_none(), "{reason} ({NO_SKIP} is set)");
    skip(reason);
}

/// The harness runs each test on a thread that has the test's name.
fn line(thread: Option<&str>, caller: &Location, reason: &str) -> String {
    let reason = reason.lines().collect::<Vec<_>>().join(" ");
    match thread {
        Some(test) if test != "main" => format!("SKIPPED: {test}: {reason}\n"),
        _ => format!("SKIPPED: {}:{}: {reason}\n", caller.file(), caller.line()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_has_one_line_with_its_name_or_its_place() {
        let here = Location::caller();
        assert_eq!(line(Some("a::test"), here, "no root"), "SKIPPED: a::test: no root\n");
        let place = format!("SKIPPED: {}:{}: two lines\n", file!(), here.line());
        assert_eq!(line(Some("main"), here, "two\nlines"), place);
        assert_eq!(line(None, here, "two\nlines\n"), place);
    }
}
