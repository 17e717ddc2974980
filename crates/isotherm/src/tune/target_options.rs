//! The options that name the targets of a run, as a shell reads them.

use std::ffi::OsStr;

use isotherm_kernel::Selection;

use crate::cli::WatchOptions;

/// The options that name the targets, quoted for a shell: those of `watch`, which name `selection`.
pub fn target_options(watch: &WatchOptions, selection: &Selection, physical: bool) -> String {
    let mut options: Vec<String> = vec![];
    let mut add = |name: &str, value: Option<String>| {
        options.push(format!("--{name}"));
        options.extend(value.map(|value| quoted(OsStr::new(&value))));
    };
    if physical {
        add("physical", None);
    }
    selection.any.iter().for_each(|selector| add(selector.kind(), selector.value()));
    for selector in &selection.except {
        add("exclude", Some(format!("{}={}", selector.kind(), selector.value().unwrap_or_default())));
    }
    if selection.least_resident > 0 {
        add("min-rss", Some(selection.least_resident.to_string()));
    }
    watch.mapping.iter().for_each(|name| add("mapping", Some(name.to_string())));
    if selection.children {
        add("children", None);
    }
    if !watch.command.is_empty() {
        options.push("--".into());
        options.extend(watch.command.iter().map(|word| quoted(word)));
    }
    options.join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::watch::Call;

    #[test]
    fn options_name_the_targets_as_the_user_did() {
        let of = |call: &[&str]| match Cli::try_parse_from(["isotherm", "tune"].iter().chain(call)).unwrap().command {
            Command::Tune(options) => {
                let selection = Call::new("tune", &options.watch).selection().unwrap();
                target_options(&options.watch, &selection, options.physical.physical)
            }
            _ => String::new(),
        };
        assert_eq!(of(&["--pid", "7", "-p", "8", "--children"]), "--pid 7 --pid 8 --children");
        assert_eq!(
            of(&["--min-rss", "1M", "--exclude", "name=^sh$", "--all"]),
            "--all --exclude 'name=^sh$' --min-rss 1048576"
        );
        assert_eq!(
            of(&["--command", "a b", "--user", "0", "--user", "4294967294", "--mapping", "heap"]),
            "--command 'a b' --user 0 --user 4294967294 --mapping heap"
        );
        assert_eq!(of(&["--", "sh", "-c", "it's; $x", ""]), r"-- sh -c 'it'\''s; $x' ''");
        assert_eq!(of(&["--physical"]), "--physical");
    }
}
