//! Debian's kernel has neither DAMON nor idle page tracking, so the tests on it prove that isotherm does not
//! need them.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn there_is_neither_damon_nor_idle_page_tracking() {
    assert!(Path::new("/sys/kernel/mm").exists());
    for missing in ["/sys/kernel/mm/damon", "/sys/kernel/mm/page_idle"] {
        assert!(!Path::new(missing).exists(), "{missing} exists: this is not the kernel stock");
    }
}
