//! The rule for huge pages.

use std::collections::BTreeMap;

use isotherm_core::units;

use super::advice::{Advice, Topic};
use super::blocks::Blocks;
use super::facts::Facts;

/// Huge pages save misses of the TLB. A second-level TLB of 2,048 entries, as in current processors of Intel and AMD,
/// reaches 8 MiB of 4 KiB pages. Below twice of that there is little to save.
const LEAST_BYTES: u64 = 16 << 20;

/// Huge pages for all blocks in use are a waste if they would add more than this part of the bytes that are accessed.
/// Then only the dense blocks are to be backed.
const WASTE: f64 = 0.1;

/// Whether huge pages are worth it, or why that cannot be told.
pub(super) fn advise(facts: &Facts<'_>) -> Result<Advice, String> {
    let Some(blocks) = facts.blocks else { return Err("no survey tells how densely memory is accessed".into()) };
    let Blocks { present_bytes, dense_bytes, dense_absent_bytes, sparse_bytes, sparse_absent_bytes, .. } = *blocks;
    if present_bytes < LEAST_BYTES {
        return Err(format!(
            "there are only {} of anonymous memory in whole blocks of 2 MiB, and the TLB reaches about as much without \
             huge pages",
            units::bytes(present_bytes)
        ));
    }
    let huge = facts.surroundings.anonymous.and_then(|anonymous| anonymous.huge_bytes);
    let small = dense_bytes.saturating_sub(huge.unwrap_or(0));
    if huge.is_some_and(|huge| huge > dense_bytes / 2) && small < LEAST_BYTES {
        return Err(format!(
            "{} are in huge pages already; one accessed bit stands for a huge page, so that surveys cannot tell how \
             densely these are accessed",
            units::bytes(huge.unwrap_or(0))
        ));
    }
    let interval = units::nanoseconds(facts.working_set.interval_ns);
    let amount = if dense_bytes > 0 { units::bytes(dense_bytes) } else { "none".into() };
    let dense = format!(
        "{amount} of the anonymous memory is in blocks of 2 MiB of which at least half of the pages are accessed \
         within {interval}"
    );
    let sparse = format!(
        "blocks that are accessed sparsely hold {}, and would grow by {}",
        units::bytes(sparse_bytes),
        units::bytes(sparse_absent_bytes)
    );
    let worth = small >= LEAST_BYTES;
    let touched = dense_bytes.saturating_add(blocks.sparse_touched_bytes);
    let text = if worth {
        let wasteful = sparse_absent_bytes as f64 > touched as f64 * WASTE;
        format!(
            "Huge pages are worth a try where memory is accessed densely: {dense}. Huge pages there would add {}{}; \
             {sparse}{}.",
            units::bytes(dense_absent_bytes),
            huge.map_or(String::new(), |huge| format!(", and {} are in huge pages already", units::bytes(huge))),
            if wasteful { ", so leave these out: do not turn huge pages on for everything" } else { "" },
        )
    } else {
        let only = if dense_bytes > 0 { "only " } else { "" };
        format!("Huge pages are not worth it: {only}{dense}, and the TLB reaches about as much without them; {sparse}.")
    };
    let setting = facts.surroundings.transparent_huge_pages.as_deref();
    let mut unknown = vec![
        "How many misses of the TLB there are is not known; `perf stat -e dTLB-load-misses` counts \
         them."
            .to_owned(),
    ];
    match huge {
        Some(0) => {}
        Some(huge) => unknown.push(format!(
            "{} are in huge pages now, which look densely accessed as soon as one page is.",
            units::bytes(huge)
        )),
        None => unknown.push("How much is in huge pages already is not known.".into()),
    }
    if let Some(setting) = setting {
        unknown.push(match worth {
            true => format!("Transparent huge pages are set to {setting}; the scheme works whatever the setting is."),
            false => format!("Transparent huge pages are set to {setting}."),
        });
    }
    let mut figures = BTreeMap::from([
        ("present_bytes", present_bytes),
        ("dense_bytes", dense_bytes),
        ("dense_absent_bytes", dense_absent_bytes),
        ("sparse_bytes", sparse_bytes),
        ("sparse_absent_bytes", sparse_absent_bytes),
    ]);
    figures.extend(huge.map(|huge| ("huge_bytes", huge)));
    Ok(Advice {
        topic: Topic::HugePages,
        text,
        figures,
        unknown,
        scheme: worth.then(|| SCHEME.to_owned()),
        command: worth.then(|| format!("isotherm run --schemes huge.yaml {}", facts.target_options)),
    })
}

/// The scheme. A page of an array that a program walks through is accessed once in a while only. The action leaves out
/// blocks of which less than seven eighths are present.
const SCHEME: &str = "\
schemes:
  - name: huge-where-dense
    size: {min: 2M}
    access_frequency: {min: 0.2Hz}
    action: hugepage
    apply_interval: 10s
    quota: {time: 100ms, period: 10s}
    filters: [{allow: anonymous}]
";

#[cfg(test)]
mod tests {
    use isotherm_record::AnonymousMemory;

    use super::*;
    use crate::tune::surroundings::Surroundings;
    use crate::tune::working_set::WorkingSet;

    const MIB: u64 = 1 << 20;

    fn on(dense: u64, sparse: u64, huge: Option<u64>) -> Result<Advice, String> {
        let blocks = Blocks {
            present_bytes: (dense + sparse + 100) * MIB,
            dense_bytes: dense * MIB,
            dense_absent_bytes: MIB,
            sparse_bytes: sparse * MIB,
            sparse_touched_bytes: sparse * MIB / 16,
            sparse_absent_bytes: sparse * MIB,
            idle_bytes: 100 * MIB,
        };
        let working_set = WorkingSet { interval_ns: 1_000_000_000, ..WorkingSet::default() };
        let anonymous = huge.map(|huge| AnonymousMemory { bytes: 1 << 30, huge_bytes: Some(huge * MIB) });
        let setting = Some("madvise".into());
        let surroundings = Surroundings { anonymous, transparent_huge_pages: setting, ..Surroundings::default() };
        advise(&Facts {
            working_set: &working_set,
            blocks: Some(&blocks),
            surroundings: &surroundings,
            target_options: "--pid 7",
        })
    }

    #[test]
    fn dense_memory_is_worth_huge_pages_and_sparse_memory_is_not() {
        let advice = on(200, 100, Some(0)).unwrap();
        assert!(advice.text.starts_with("Huge pages are worth a try"), "{}", advice.text);
        assert!(advice.text.contains("would grow by 100 MiB, so leave these out"), "{}", advice.text);
        assert!(advice.scheme.is_some() && advice.command.is_some_and(|command| command.ends_with("--pid 7")));
        let sparse = on(8, 100, None).unwrap();
        assert!(sparse.text.starts_with("Huge pages are not worth it: only 8 MiB"), "{}", sparse.text);
        assert_eq!((sparse.scheme, sparse.command), (None, None));
        assert!(sparse.unknown.iter().any(|text| text.ends_with("already is not known.")), "{:?}", sparse.unknown);
    }

    #[test]
    fn memory_in_huge_pages_looks_dense_and_is_no_evidence() {
        assert!(on(200, 0, Some(190)).unwrap_err().starts_with("190 MiB are in huge pages already"));
        // Of 200 MiB, 80 are huge.
        assert!(on(200, 0, Some(80)).unwrap().text.contains("80 MiB are in huge pages already"));
    }

    #[test]
    fn a_little_memory_needs_no_huge_pages() {
        let working_set = WorkingSet::default();
        let surroundings = Surroundings::default();
        let facts =
            |blocks| Facts { working_set: &working_set, blocks, surroundings: &surroundings, target_options: "" };
        let few = Blocks { present_bytes: 6 * MIB, dense_bytes: 6 * MIB, ..Blocks::default() };
        assert!(advise(&facts(Some(&few))).unwrap_err().starts_with("there are only 6 MiB"));
        assert!(advise(&facts(None)).is_err());
    }
}
