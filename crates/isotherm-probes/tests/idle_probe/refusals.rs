//! Files that are missing or refuse.

use std::fs;

use isotherm_core::AccessProbe;
use isotherm_probes::idle::IdleProbe;

use crate::made::*;

fn refusal(made: &Made) -> String {
    IdleProbe::at(made.root.path()).unwrap_err().to_string()
}

#[test]
fn a_kernel_without_idle_tracking_is_told_by_what_it_lacks() {
    let made = Made::new(64);
    fs::remove_dir_all(made.path("sys/kernel/mm/page_idle")).unwrap();
    let told = refusal(&made);
    assert!(told.contains("sys/kernel/mm/page_idle/bitmap") && told.contains("CONFIG_IDLE_PAGE_TRACKING"), "{told}");
}

#[test]
fn a_kernel_without_page_flags_is_told_by_what_it_lacks() {
    let made = Made::new(64);
    fs::remove_file(made.path("proc/kpageflags")).unwrap();
    let told = refusal(&made);
    assert!(told.contains("proc/kpageflags") && told.contains("CONFIG_PROC_PAGE_MONITOR"), "{told}");
}

#[test]
fn a_file_that_cannot_be_read_ends_the_run_with_its_name() {
    let made = Made::new(64);
    // A directory can be opened, but not read.
    fs::remove_file(made.path("proc/kpageflags")).unwrap();
    fs::create_dir(made.path("proc/kpageflags")).unwrap();
    let mut probe = made.probe(64);
    let told = probe.clear(&samples(PHYSICAL, [1])).unwrap_err().to_string();
    assert!(told.contains("proc/kpageflags cannot be read") && told.contains("directory"), "{told}");
}

#[test]
fn a_process_whose_pages_cannot_be_looked_up_is_unobservable_and_the_rest_goes_on() {
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
