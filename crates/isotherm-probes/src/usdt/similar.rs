//! What is said when no watched program has a probe: which ones there are instead.

use std::collections::BTreeSet;

use super::UsdtProbe;

/// The most probes, and the most providers, that are named.
const MOST: usize = 5;

/// Names the probes of these files that `wanted` may stand for: those of the same provider, or else those of the same
/// name, or else the providers that there are.
pub(super) fn instead(wanted: &UsdtProbe, known: &BTreeSet<UsdtProbe>) -> String {
    let same = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
    let of_the_provider: Vec<_> = known.iter().filter(|probe| same(probe.provider(), wanted.provider())).collect();
    let of_the_name: Vec<_> = known.iter().filter(|probe| same(probe.name(), wanted.name())).collect();
    let mut near = if of_the_provider.is_empty() { of_the_name } else { of_the_provider };
    if !near.is_empty() {
        // Those that begin like it, or end like it, come first.
        near.sort_by_key(|probe| std::cmp::Reverse(likeness(wanted.name(), probe.name())));
        return format!("it has {}", list(near.iter().map(ToString::to_string)));
    }
    let providers: BTreeSet<&str> = known.iter().map(UsdtProbe::provider).collect();
    if providers.is_empty() {
        return "it has no USDT probes at all (readelf -n FILE shows those of a file)".into();
    }
    format!("its USDT probes are those of {}", list(providers.into_iter().map(str::to_owned)))
}

/// How many bytes at the start or at the end of two names are the same.
fn likeness(one: &str, other: &str) -> usize {
    let same = |(one, other): &(u8, u8)| one.eq_ignore_ascii_case(other);
    let starts = one.bytes().zip(other.bytes()).take_while(same).count();
    starts.max(one.bytes().rev().zip(other.bytes().rev()).take_while(same).count())
}

fn list(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MOST);
    let list = names.take(MOST).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{list} and {more} more") } else { list }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn known(names: &[&str]) -> BTreeSet<UsdtProbe> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn told(wanted: &str, names: &[&str]) -> String {
        instead(&wanted.parse().unwrap(), &known(names))
    }

    #[test]
    fn the_probes_of_the_same_provider_are_named_the_most_alike_first() {
        let names =
            ["db:abort", "db:commit", "db:query__done", "db:query__start", "db:sort__start", "db:wal", "libc:x"];
        let like = "it has db:query__done, db:query__start, db:abort, db:commit, db:sort__start and 1 more";
        assert_eq!(told("db:query__begin", &names), like);
    }

    #[test]
    fn without_the_provider_the_same_name_is_named_and_otherwise_the_providers() {
        assert_eq!(told("mysql:commit", &["db:commit", "libc:x"]), "it has db:commit");
        assert_eq!(told("mysql:query", &["db:commit", "db:wal", "libc:x"]), "its USDT probes are those of db, libc");
        assert!(told("mysql:query", &[]).contains("no USDT probes at all"));
    }
}
