//! Files that are missing or cannot be read.

use std::fs;

use isotherm_core::AccessProbe;
use isotherm_probes::idle::IdleProbe;

use crate::made::*;

fn refusal(made: &Made) -> String {
    IdleProbe::at(made.root.path()).unwrap_err().to_string()
}

#[test]
fn the_error_on_a_kernel_without_idle_page_tracking_names_the_missing_option() {
    let made = Made::new(64);
    fs::remove_dir_all(made.path("sys/kernel/mm/page_idle")).unwrap();
    let error = refusal(&made);
    assert!(error.contains("sys/kernel/mm/page_idle/bitmap") && error.contains("CONFIG_IDLE_PAGE_TRACKING"), "{error}");
}

#[test]
fn the_error_on_a_kernel_without_page_flags_names_the_missing_option() {
    let made = Made::new(64);
    fs::remove_file(made.path("proc/kpageflags")).unwrap();
    let error = refusal(&made);
    assert!(error.contains("proc/kpageflags") && error.contains("CONFIG_PROC_PAGE_MONITOR"), "{error}");
}

#[test]
fn the_error_for_a_file_that_cannot_be_read_names_the_file() {
    let made = Made::new(64);
    // A directory can be opened, but not read.
    fs::remove_file(made.path("proc/kpageflags")).unwrap();
    fs::create_dir(made.path("proc/kpageflags")).unwrap();
    let mut probe = made.probe(64);
    let error = isotherm_core::chain(&*probe.clear(&samples(PHYSICAL, [1])).unwrap_err());
    assert!(error.contains("proc/kpageflags cannot be read") && error.contains("directory"), "{error}");
}

#[test]
fn a_process_whose_pagemap_cannot_be_read_is_unobservable_and_other_targets_are_observed() {
    use isotherm_core::Observation::{Idle, Unobservable};
    let made = Made::new(64);
    made.set_flags(0, 0);
    fs::remove_file(made.path("proc/7/pagemap")).unwrap();
    fs::create_dir(made.path("proc/7/pagemap")).unwrap();
    let mut probe = made.probe(64);
    let mut all = samples(PROCESS, [1, 2]);
    all.extend(samples(PHYSICAL, [1]));
    assert_eq!(round(&mut probe, &all, || ()), [Unobservable, Unobservable, Idle]);
}
